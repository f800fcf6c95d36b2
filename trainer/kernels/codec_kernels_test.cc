// SPDX-License-Identifier: Apache-2.0
// What codecs are made of, against plain loops, for lengths that are no multiple of a vector.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "common/random/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/kernels/magnitudes.h"
#include "trainer/kernels/quantise.h"
#include "trainer/kernels/sign_bits.h"
#include "trainer/kernels/ternary.h"

namespace starling::kernels {
namespace {

constexpr std::size_t kLengths[] = {0, 1, 15, 16, 31, 32, 33, 64, 1000, 2048, 40000};

std::vector<float> Random(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(SignBits, ArePackedAndUnpackedWhateverTheLengthAndTheAddress) {
  for (const std::size_t length : kLengths) {
    std::vector<float> values = Random(length, 1);
    if (length > 1) values[1] = -0.0F;
    std::vector<std::byte> bytes(1 + SignWords(length) * 4, std::byte{0xff});
    const std::span<std::byte> odd = std::span(bytes).subspan(1);
    PackSigns(values, odd);
    for (std::size_t i = 0; i < SignWords(length) * 32; ++i) {
      const bool bit = (std::to_integer<unsigned>(odd[i / 8]) >> i % 8 & 1U) != 0;
      ASSERT_EQ(bit, i < length && !(values[i] < 0)) << i;
    }
    std::vector<float> back(length);
    UnpackSigns(odd, {-2, 3}, back);
    for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(back[i], values[i] < 0 ? -2 : 3) << i;
  }
}

// In the order that is documented: sixteen sums a side, which are added in order. The same bits.
SignMeans MeansByLoop(const std::vector<float>& values) {
  double below[16] = {}, above[16] = {}, counts[2] = {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool is_below = values[i] < 0;
    (is_below ? below : above)[i % 16] += double{values[i]};
    counts[is_below ? 0 : 1] += 1;
  }
  const auto mean = [](const double(&lanes)[16], double count) {
    const double sum = std::accumulate(std::begin(lanes), std::end(lanes), 0.0);
    return count > 0 ? static_cast<float>(sum / count) : 0.0F;
  };
  return {mean(below, counts[0]), mean(above, counts[1])};
}

TEST(SignBits, MeansAreThoseOfTheTwoSidesToTheBit) {
  for (const std::size_t length : kLengths) {
    const std::vector<float> values = Random(length, 2);
    const SignMeans means = MeansBySign(values), expected = MeansByLoop(values);
    EXPECT_EQ(means.above, expected.above) << length;
    EXPECT_EQ(means.below, expected.below) << length;
  }
  const std::vector<float> zeros(100, -0.0F);
  EXPECT_EQ(MeansBySign(zeros).below, 0) << "-0 is not below";
}

TEST(Magnitudes, TheLargestAndThoseThatReachAThreshold) {
  for (const std::size_t length : kLengths) {
    std::vector<float> values = Random(length, 3);
    if (length > 20) values[20] = 0;
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    EXPECT_EQ(LargestMagnitude(values), largest);
    for (const float threshold : {0.0F, 1.0F, 2.5F, 100.0F}) {
      std::vector<std::uint32_t> places;
      for (std::uint32_t i = 0; i < length; ++i) {
        if (values[i] != 0 && std::abs(values[i]) >= threshold) places.push_back(i);
      }
      EXPECT_EQ(AtLeast(values, threshold), places);
    }
  }
}

// The sum of the squares of what is lost.
double Int8Error(const std::vector<float>& values, float scale) {
  std::vector<std::int8_t> levels(values.size());
  QuantiseInt8(values, scale, levels);
  std::vector<float> back(values.size());
  DequantiseInt8(levels, scale, back);
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += std::pow(double{values[i]} - double{back[i]}, 2);
  }
  return sum;
}

TEST(Int8, RoundsToTheNearestLevelAndClips) {
  for (const std::size_t length : kLengths) {
    const std::vector<float> values = Random(length, 4);
    constexpr float kScale = 0.015625F;
    std::vector<std::int8_t> levels(length);
    QuantiseInt8(values, kScale, levels);
    double error = 0;
    for (std::size_t i = 0; i < length; ++i) {
      const float level = std::clamp(std::nearbyint(values[i] / kScale), -127.0F, 127.0F);
      ASSERT_EQ(static_cast<float>(levels[i]), level) << values[i];
      error += std::pow(double{values[i]} - double{level * kScale}, 2);
    }
    EXPECT_NEAR(Int8Error(values, kScale), error, 1e-6 * (1 + error));
    std::vector<float> back(length);
    DequantiseInt8(levels, kScale, back);
    for (std::size_t i = 0; i < length; ++i) {
      ASSERT_EQ(back[i], static_cast<float>(levels[i]) * kScale);
    }
  }
}

TEST(Int8, ClipsWhereThatLosesLessAndOnlyThere) {
  for (const float unit : {1e-15F, 1.0F, 1e15F}) {
    for (const std::size_t length : {1, 15, 17, 1000, 4095, 8191, 8192, 40000, 65536}) {
      std::vector<float> tailed = Random(length, 8), even(length);
      for (float& value : tailed) value *= value * value * unit;  // few are far out
      for (std::size_t i = 0; i < length; ++i) {
        even[i] = unit * (static_cast<float>(i % 201) - 100);
      }
      for (const std::vector<float>& values : {tailed, even}) {
        const float whole = LargestMagnitude(values) / kLargestInt8;
        if (whole == 0) continue;
        const float scale = Int8Scale(values);
        ASSERT_LE(scale, whole);
        EXPECT_LE(Int8Error(values, scale), Int8Error(values, whole)) << unit << ' ' << length;
        if (length < 1000 || length >= 8192) continue;
        // All numbers are the sample: no other of a hundred scales loses a tenth less.
        double best = Int8Error(values, whole);
        for (int i = 1; i < 100; ++i) {
          best = std::min(best, Int8Error(values, whole * static_cast<float>(i) / 100));
        }
        EXPECT_LE(Int8Error(values, scale), best * 1.1) << unit << ' ' << length;
      }
      EXPECT_EQ(Int8Scale(std::vector<float>(length)), 0);
    }
  }
  std::vector<float> tailed = Random(8000, 9);  // so few that all are the sample
  for (float& value : tailed) value *= value * value;
  EXPECT_LT(Int8Scale(tailed), 0.98F * LargestMagnitude(tailed) / kLargestInt8)
      << "of such numbers some are worth losing";
}

TEST(Int8, LevelsAreAddedAndOneThatIsNoneIsSeen) {
  for (const std::size_t length : kLengths) {
    std::vector<std::int8_t> levels(length);
    std::vector<std::int32_t> sums(length, 1'000'000);
    for (std::size_t i = 0; i < length; ++i) {
      levels[i] = static_cast<std::int8_t>(static_cast<int>(i * 37 % 255) - kLargestInt8);
    }
    ASSERT_TRUE(AddInt8(levels, sums));
    for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(sums[i], 1'000'000 + levels[i]);
    for (std::size_t place = 0; place < std::min<std::size_t>(length, 70); ++place) {
      std::vector<std::int8_t> forged = levels;
      forged[place] = -128;
      EXPECT_FALSE(AddInt8(forged, sums)) << place;
    }
  }
}

TEST(Log, TakesTheNearestEighthOfAFactorOfTwo) {
  std::vector<float> values = Random(40000, 5);
  values[0] = 0;
  values[1] = 1e-39F;
  std::vector<std::uint8_t> codes(values.size());
  constexpr int kTop = 3;
  QuantiseLog(values, kTop, codes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double magnitude = std::abs(double{values[i]});
    const double steps = magnitude > 0 ? kLogSteps * (kTop - std::log2(magnitude)) : 1000;
    ASSERT_EQ(codes[i] >> 7, std::signbit(values[i]) ? 1 : 0);
    const int code = codes[i] & 127;
    if (steps > 126.51) {
      ASSERT_EQ(code, 127) << values[i];
    } else {
      ASSERT_NEAR(code, steps, 0.5 + 1e-5) << values[i];
    }
  }
}

TEST(Log, CodesOfAPrefixAreThePrefixOfTheCodes) {
  const std::vector<float> values = Random(40000, 6);
  std::vector<std::uint8_t> codes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {  // one by one: no vector
    QuantiseLog(std::span(values).subspan(i, 1), 3, std::span(codes).subspan(i, 1));
  }
  for (const std::size_t length : kLengths) {
    std::vector<std::uint8_t> some(length + 1, 77);
    QuantiseLog(std::span(values).first(length), 3, std::span(some).first(length));
    EXPECT_TRUE(std::equal(some.begin(), some.end() - 1, codes.begin())) << length;
    EXPECT_EQ(some.back(), 77) << length;
  }
}

TEST(Ternary, NumbersAreDrawnAsPhiloxSaysOneByOne) {
  constexpr float kClip = 1.5F, kScale = 1.25F;
  const TernaryDraws draws{{7, 8}, {9, 10}};
  for (const std::size_t length : kLengths) {
    const std::vector<float> values = Random(length, 6);
    std::vector<std::byte> codes(TernaryBytes(length), std::byte{0xff});
    DrawTernary(values, kClip, 1 / double{kScale}, draws, codes);
    std::vector<float> back(length);
    std::vector<std::int32_t> sums(length, 5);
    ASSERT_TRUE(FromTernary(codes, kScale, back));
    ASSERT_TRUE(AddTernary(codes, sums));
    for (std::size_t i = 0; i < length; ++i) {
      const random::Block block =
          random::Philox4x32({static_cast<std::uint32_t>(i / 4), 9, 10, 0}, {7, 8});
      const double magnitude = std::min(std::abs(values[i]), kClip);
      const bool sent = block[i % 4] < magnitude / double{kScale} * 0x1p32;
      const int level = !sent ? 0 : values[i] < 0 ? -1 : 1;
      ASSERT_EQ(back[i], static_cast<float>(level) * kScale) << i << " of " << length;
      ASSERT_EQ(sums[i], 5 + level);
    }
    if (length == 0) continue;
    const std::byte last = codes.back();
    codes.back() = std::byte{3};
    EXPECT_FALSE(FromTernary(codes, kScale, back)) << length;
    EXPECT_FALSE(AddTernary(codes, sums)) << length;
    codes.back() = last | std::byte{0x40};
    EXPECT_EQ(FromTernary(codes, kScale, back),
              length % 4 == 0 && (last & std::byte{0x80}) == std::byte{0})
        << "a spare code is 0";
  }
}

}  // namespace
}  // namespace starling::kernels
