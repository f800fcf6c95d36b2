// SPDX-License-Identifier: Apache-2.0
#include "common/random/philox.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "gtest/gtest.h"

namespace starling::random {
namespace {

TEST(Philox, AgreesWithThePublishedAnswers) {
  // Known answers of the authors' Random123 library.
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, SeedStreamSubstreamAndCounterAllMatter) {
  const Block base = Philox(1, Stream::kTest, 0).At(0);
  EXPECT_EQ(base, Philox(1, Stream::kTest, 0).At(0));
  EXPECT_NE(base, Philox(2, Stream::kTest, 0).At(0));
  EXPECT_NE(base, Philox(1ULL << 32 | 1, Stream::kTest, 0).At(0));
  EXPECT_NE(base, Philox(1, Stream::kParameters, 0).At(0));
  EXPECT_NE(base, Philox(1, Stream::kTest, 1).At(0));
  EXPECT_NE(base, Philox(1, Stream::kTest, 0).At(1));
  EXPECT_NE(base, Philox(1, Stream::kTest, 0).At(1ULL << 32));
}

// Chi-square of `draw(i)` in [0, cells) for i in [0, draws): about cells - 1 when it is uniform.
template <typename Draw>
double ChiSquare(int cells, int draws, Draw draw) {
  std::vector<double> counts(cells);
  for (int i = 0; i < draws; ++i) ++counts[draw(i)];
  const double expected = static_cast<double>(draws) / cells;
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

// 99 degrees of freedom: 0.999 of uniform sources stay below.
constexpr double kLimit = 149;

TEST(Philox, DrawsAreUniform) {
  const Philox random(7, Stream::kTest);
  EXPECT_LT(ChiSquare(100, 100'000, [&](int i) { return int(random.Below(i, 100)); }), kLimit);
  EXPECT_LT(ChiSquare(100, 100'000, [&](int i) { return int(100 * random.Uniform(i)); }), kLimit);
}

TEST(Philox, TheUniformityCheckCanFail) {
  const Philox random(7, Stream::kTest);
  EXPECT_GT(
      ChiSquare(100, 100'000, [&](int i) { return int(100 * std::pow(random.Uniform(i), 1.1)); }),
      kLimit);
}

TEST(Philox, NormalsHaveMeanZeroVarianceOneAndTails) {
  const Philox random(3, Stream::kTest);
  constexpr int kDraws = 200'000;
  double sum = 0;
  double squares = 0;
  int beyond_two = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = random.Normal(i);
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    beyond_two += std::abs(value) > 2;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1, 0.02);
  EXPECT_NEAR(beyond_two / static_cast<double>(kDraws), 0.0455, 0.003);
}

// What the C library says of one draw; its logarithm and cosine are off by a unit in the last place
// now and then, and so are ours.
double NormalOfLibrary(const Philox& random, std::uint64_t counter) {
  const Block block = random.At(counter);
  const auto unit = [](std::uint32_t low, std::uint32_t high) {
    return std::ldexp(static_cast<double>((std::uint64_t{high} << 32 | low) >> 11), -53);
  };
  return std::sqrt(-2 * std::log1p(-unit(block[0], block[1]))) *
         std::cos(2 * std::numbers::pi * unit(block[2], block[3]));
}

TEST(Philox, NormalsAreBoxAndMullers) {
  const Philox random(4, Stream::kTest, 5);
  int other_floats = 0;
  for (std::uint64_t i = 0; i < 300'000; ++i) {
    const double value = random.Normal(i);
    const double expected = NormalOfLibrary(random, i);
    ASSERT_NEAR(value, expected, 1e-14) << i;
    other_floats += static_cast<float>(value) != static_cast<float>(expected);
  }
  EXPECT_LE(other_floats, 1);
}

TEST(Philox, ManyDrawsAreThoseOfEachCounterBitForBit) {
  const Philox random(0x123456789ABCDEF0, Stream::kTest, 6);
  for (const std::uint64_t first : {0ULL, 17ULL, (1ULL << 32) - 30, ~0ULL - 99}) {
    for (const std::size_t count : {0, 1, 15, 16, 63, 64, 65, 80, 200}) {
      std::vector<double> uniforms(count), normals(count);
      random.Uniforms(first, uniforms);
      random.Normals(first, normals);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(uniforms[i], random.Uniform(first + i)) << first << " " << i << " of " << count;
        ASSERT_EQ(normals[i], random.Normal(first + i)) << first << " " << i << " of " << count;
      }
    }
  }
}

// On any processor: what a job's weights begin with must not depend on where its workers run.
TEST(Philox, BitsAreThoseThatAreWrittenDownHere) {
  const Philox random(1, Stream::kTest);
  std::uint64_t uniforms = 0, normals = 0;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    uniforms = std::rotl(uniforms, 1) ^ std::bit_cast<std::uint64_t>(random.Uniform(i));
    normals = std::rotl(normals, 1) ^ std::bit_cast<std::uint64_t>(random.Normal(i));
  }
  EXPECT_EQ(uniforms, 13247067247028166868u);
  EXPECT_EQ(normals, 2667048776368122303u);
}

}  // namespace
}  // namespace starling::random
