// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/span_math.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::kernels {
namespace {

constexpr std::size_t kLengths[] = {0, 1, 2, 15, 16, 17, 31, 64, 1000, 4099};

std::vector<float> Random(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::uint32_t> Bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

// Rounded to float, so that no compiler fuses what the test wants apart.
float Rounded(float value) {
  volatile float rounded = value;
  return rounded;
}

TEST(SpanMath, ElementwiseResultsAreThoseOfAScalarLoopBitForBit) {
  for (const std::size_t n : kLengths) {
    const auto x = Random(n, 1);
    const auto y = Random(n, 2);
    auto added = y, subtracted = y, scaled = y, axpy = y, copied = y, filled = y;
    auto sum = y, difference = y, cleared = y, gaps = x;
    Add(x, added);
    Subtract(x, subtracted);
    Scale(0.3F, scaled);
    Axpy(0.3F, x, axpy);
    Copy(x, copied);
    Fill(2.5F, filled);
    SumOf(x, y, sum);
    DifferenceOf(x, y, difference);
    for (std::size_t i = 0; i < n; i += 3) gaps[i] = i % 2 == 0 ? 0.0F : -0.0F;
    ClearWhereNonZero(gaps, cleared);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(added[i], Rounded(y[i] + x[i]));
      EXPECT_EQ(subtracted[i], Rounded(y[i] - x[i]));
      EXPECT_EQ(scaled[i], Rounded(0.3F * y[i]));
      EXPECT_EQ(axpy[i], Rounded(y[i] + Rounded(0.3F * x[i])));
      EXPECT_EQ(filled[i], 2.5F);
      EXPECT_EQ(sum[i], Rounded(x[i] + y[i]));
      EXPECT_EQ(difference[i], Rounded(x[i] - y[i]));
      EXPECT_EQ(cleared[i], i % 3 == 0 ? y[i] : 0);
    }
    EXPECT_EQ(Bits(copied), Bits(x));
  }
}

TEST(SpanMath, SumsAddInTheDocumentedOrder) {
  for (const std::size_t n : kLengths) {
    const auto x = Random(n, 3);
    const auto y = Random(n, 4);
    double sum_lanes[kSumLanes] = {}, dot_lanes[kSumLanes] = {};
    for (std::size_t i = 0; i < n; ++i) {
      sum_lanes[i % kSumLanes] += double{x[i]};
      dot_lanes[i % kSumLanes] += double{x[i]} * double{y[i]};
    }
    double sum = 0, dot = 0;
    for (std::size_t lane = 0; lane < kSumLanes; ++lane) {
      sum += sum_lanes[lane];
      dot += dot_lanes[lane];
    }
    EXPECT_EQ(Sum(x), sum);
    EXPECT_EQ(Dot(x, y), dot);
    EXPECT_EQ(SumOfSquares(x), Dot(x, x));
  }
}

TEST(SpanMath, AnotherOrderGivesOtherBitsSoTheOrderTestCanFail) {
  const auto x = Random(4099, 3);
  const auto y = Random(4099, 4);
  double serial = 0;
  for (std::size_t i = 0; i < x.size(); ++i) serial += double{x[i]} * double{y[i]};
  EXPECT_NE(Dot(x, y), serial);
  EXPECT_NEAR(Dot(x, y), serial, 1e-3);
}

TEST(SpanMath, ResultsDoNotDependOnAlignment) {
  const auto x = Random(1003, 5);
  for (std::size_t shift = 1; shift < 5; ++shift) {
    std::vector<float> shifted(x.size() + shift);
    const std::span<float> view = std::span(shifted).subspan(shift);
    Copy(x, view);
    EXPECT_EQ(Sum(view), Sum(x));
  }
}

TEST(SpanMath, CopiesPastTheCachesAreWholeAndNoMore) {
  const auto source = Random(300, 6);
  const auto bytes = std::as_bytes(std::span(source));
  for (const std::size_t length : {0, 1, 63, 64, 65, 127, 128, 200, 1000}) {
    for (std::size_t from = 0; from < 70; from += 23) {
      for (std::size_t to = 0; to < 70; ++to) {
        std::vector<std::byte> copy(1200, std::byte{0xA5});
        std::vector<std::byte> expected = copy;
        std::ranges::copy(bytes.subspan(from, length), expected.begin() + to);
        CopyPastCaches(bytes.subspan(from, length), std::span(copy).subspan(to, length));
        ASSERT_EQ(copy, expected) << length << " bytes from " << from << " to " << to;
      }
    }
  }
}

TEST(SpanMath, MinimumAndMaximumOfIntegers) {
  std::vector<std::int64_t> low = {5, -3, std::numeric_limits<std::int64_t>::max()};
  std::vector<std::int64_t> high = low;
  const std::vector<std::int64_t> other = {4, -2, std::numeric_limits<std::int64_t>::min()};
  Minimum(other, low);
  Maximum(other, high);
  EXPECT_THAT(low, testing::ElementsAre(4, -3, std::numeric_limits<std::int64_t>::min()));
  EXPECT_THAT(high, testing::ElementsAre(5, -2, std::numeric_limits<std::int64_t>::max()));
}

TEST(SpanMath, FindsWhatIsNotFiniteWhereverItStands) {
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (const std::size_t n : {std::size_t{1}, std::size_t{17}, std::size_t{100}}) {
    auto x = Random(n, 6);
    EXPECT_TRUE(AllFinite(x));
    for (const float value : bad) {
      auto y = x;
      y[n / 2] = value;
      EXPECT_FALSE(AllFinite(y));
    }
  }
  EXPECT_TRUE(AllFinite({}));
  EXPECT_TRUE(AllFinite(std::vector<float>{std::numeric_limits<float>::max(), -0.0F,
                                           std::numeric_limits<float>::lowest(),
                                           std::numeric_limits<float>::denorm_min()}));
}

}  // namespace
}  // namespace starling::kernels
