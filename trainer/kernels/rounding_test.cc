// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/rounding.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/random/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float InFloat16(float value) {
  RoundToFloat16({&value, 1});
  return value;
}
float InBfloat16(float value) {
  RoundToBfloat16({&value, 1});
  return value;
}

// The nearest number with so many significant bits, none of which is below `lowest`, in doubles.
float Nearest(float value, int bits, int lowest, double beyond) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value) - bits + 1, lowest);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(double{value}, -exponent)), exponent);
  return std::abs(rounded) >= beyond ? std::copysign(kInfinity, value)
                                     : static_cast<float>(rounded);
}

// Every 1,021st of all bit patterns, and those beside the edges.
std::vector<float> Samples() {
  std::vector<float> samples;
  for (std::uint64_t bits = 0; bits < 1ULL << 32; bits += 1021) {
    samples.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const float edge : {65504.0F, 65519.99F, 65520.0F, 6.103515625e-5F, 5.9604645e-8F,
                           2.9802322e-8F, 1.0009765625F, 1.00048828125F, 3.3895314e38F}) {
    for (const float sign : {1.0F, -1.0F}) {
      samples.push_back(sign * edge);
      samples.push_back(std::nextafter(sign * edge, 0.0F));
      samples.push_back(std::nextafter(sign * edge, sign * kInfinity));
    }
  }
  return samples;
}

template <typename Expected>
void CheckAll(void (*round)(std::span<float>), const Expected& expected) {
  const std::vector<float> samples = Samples();
  std::vector<float> rounded = samples;
  round(rounded);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const float wanted = expected(samples[i]);
    const bool same = std::isnan(wanted) ? std::isnan(rounded[i])
                                         : std::bit_cast<std::uint32_t>(wanted) ==
                                               std::bit_cast<std::uint32_t>(rounded[i]);
    if (!same && ++wrong < 5)
      ADD_FAILURE() << samples[i] << ": " << rounded[i] << ", not " << wanted;
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(Rounding, Float16IsTheNearestNumberOfHalfPrecision) {
  CheckAll(RoundToFloat16, [](float value) { return Nearest(value, 11, -24, 65520); });
}

TEST(Rounding, Bfloat16IsTheNearestOfTheUpper16Bits) {
  CheckAll(RoundToBfloat16,
           [](float value) { return Nearest(value, 8, -133, std::ldexp(1.0, 128)); });
}

TEST(Rounding, SmallGradientsAreLostInFloat16AndNotWhereTheyAreScaled) {
  const float gradient = std::ldexp(1.0F, -26);
  EXPECT_EQ(InFloat16(gradient), 0);
  EXPECT_EQ(InFloat16(gradient * 4096) / 4096, gradient);
  EXPECT_EQ(InBfloat16(gradient), gradient) << "it has the range of 32 bits";
}

TEST(Rounding, WhatIsTooLargeOrNoNumberIsSeen) {
  EXPECT_EQ(InFloat16(65504), 65504);
  EXPECT_EQ(InFloat16(65520), kInfinity);
  EXPECT_EQ(InFloat16(-1e9F), -kInfinity);
  EXPECT_TRUE(std::isnan(InFloat16(std::nanf(""))));
  EXPECT_TRUE(std::isnan(InBfloat16(std::bit_cast<float>(0x7f800001U))))
      << "its upper bits alone are those of infinity";
}

constexpr FixedPointGrid kGrid = {.step = 0.25F, .lowest = -2, .highest = 1.75F};

std::vector<std::uint32_t> DrawsOf(std::size_t count, std::uint64_t substream) {
  const random::Philox source(3, random::Stream::kTest, substream);
  std::vector<std::uint32_t> draws(count);
  for (std::size_t i = 0; i < count; ++i) draws[i] = source.At(i / 4)[i % 4];
  return draws;
}

TEST(Rounding, FixedPointIsTheNearestMultipleAndStopsAtTheEnds) {
  std::vector<float> values = {0.1F, 0.13F, -0.13F, 0.125F, 0.375F, 5, -5, 1.75F, -2, 0};
  RoundToGrid(kGrid, values);
  EXPECT_THAT(values, ::testing::ElementsAre(0, 0.25F, -0.25F, 0, 0.5F, 1.75F, -2, 1.75F, -2, 0));
  float none = std::nanf("");
  RoundToGrid(kGrid, {&none, 1});
  EXPECT_TRUE(std::isnan(none));
}

TEST(Rounding, StochasticRoundingIsRightOnAverageAndChangesNoMultiple) {
  constexpr std::size_t kDraws = 100000;
  for (const float value : {0.01F, 0.1F, -0.1F, 0.2499F, 1.3F, -1.99F}) {
    std::vector<float> values(kDraws, value);
    RoundToGridByDraws(kGrid, DrawsOf(kDraws, 1), values);
    double sum = 0;
    for (const float rounded : values) {
      EXPECT_LT(std::abs(rounded - value), kGrid.step);
      sum += rounded;
    }
    const double part = std::abs(value / kGrid.step - std::floor(value / kGrid.step));
    const double error = kGrid.step * std::sqrt(part * (1 - part) / kDraws);
    EXPECT_NEAR(sum / kDraws, value, 4 * error + 1e-7) << value;
    EXPECT_GT(std::abs(std::nearbyint(value / kGrid.step) * kGrid.step - value), 4 * error)
        << "rounding to nearest would be seen";
  }
  std::vector<float> multiples = {-2, -0.25F, 0, 0.5F, 1.75F};
  const std::vector<float> before = multiples;
  RoundToGridByDraws(kGrid, DrawsOf(multiples.size(), 2), multiples);
  EXPECT_EQ(multiples, before);
  std::vector<float> outside = {9, -9};
  RoundToGridByDraws(kGrid, DrawsOf(2, 2), outside);
  EXPECT_THAT(outside, ::testing::ElementsAre(1.75F, -2));
}

}  // namespace
}  // namespace starling::kernels
