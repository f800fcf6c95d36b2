// SPDX-License-Identifier: Apache-2.0
#include "trainer/buffer/number_format.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "trainer/buffer/float16_conversion.h"

namespace starling::buffer {
namespace {

constexpr int kPatterns = 1 << 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t BitsOf(float value) { return std::bit_cast<std::uint32_t>(value); }
float FloatOf(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// A format of 16 bits, by its definition: sign, exponent, fraction.
struct Format {
  const char* name;
  int exponent_bits;
  int fraction_bits;
  void (*encode)(const std::vector<float>&, std::vector<std::uint16_t>&);
  void (*decode)(const std::vector<std::uint16_t>&, std::vector<float>&);

  std::uint16_t Encode(float value) const {
    std::vector<std::uint16_t> encoded(1);
    encode({value}, encoded);
    return encoded[0];
  }
  float Decode(std::uint16_t bits) const {
    std::vector<float> values(1);
    decode({bits}, values);
    return values[0];
  }
  int most() const { return (1 << exponent_bits) - 1; }  // the exponent of infinity and NaN
  std::uint16_t infinity() const { return static_cast<std::uint16_t>(most() << fraction_bits); }

  bool IsNan(std::uint16_t bits) const { return (bits & 0x7fff) > infinity(); }
  double ValueOf(std::uint16_t bits) const {
    const int exponent = bits >> fraction_bits & most();
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int bias = most() / 2;
    const double magnitude = exponent == most() ? kInfinity
                             : exponent == 0    ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                                : std::ldexp(fraction + (1 << fraction_bits),
                                                             exponent - bias - fraction_bits);
    return bits >> 15 != 0 ? -magnitude : magnitude;
  }
};

template <typename T, void (*kEncode)(std::span<const float>, std::span<T>)>
void EncodeAll(const std::vector<float>& values, std::vector<std::uint16_t>& encoded) {
  std::vector<T> out(values.size());
  kEncode(values, out);
  for (std::size_t i = 0; i < out.size(); ++i) encoded[i] = out[i].bits;
}
template <typename T, void (*kDecode)(std::span<const T>, std::span<float>)>
void DecodeAll(const std::vector<std::uint16_t>& encoded, std::vector<float>& values) {
  std::vector<T> in(encoded.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i].bits = encoded[i];
  kDecode(in, values);
}

const Format kFormats[] = {
    {"Float16", 5, 10, EncodeAll<Float16, EncodeFloat16>, DecodeAll<Float16, DecodeFloat16>},
    {"BFloat16", 8, 7, EncodeAll<BFloat16, EncodeBFloat16>, DecodeAll<BFloat16, DecodeBFloat16>}};

class NumberFormat : public ::testing::TestWithParam<Format> {
 protected:
  const Format& format() const { return GetParam(); }
  // All patterns at once, so that the vectorised loops are what is tested.
  std::vector<std::uint16_t> AllPatterns() const {
    std::vector<std::uint16_t> patterns(kPatterns);
    for (int i = 0; i < kPatterns; ++i) patterns[i] = static_cast<std::uint16_t>(i);
    return patterns;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, NumberFormat, ::testing::ValuesIn(kFormats),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(NumberFormat, EveryPatternHasItsValueAndComesBackAsItself) {
  const std::vector<std::uint16_t> patterns = AllPatterns();
  std::vector<float> values(kPatterns);
  format().decode(patterns, values);
  std::vector<std::uint16_t> again(kPatterns);
  format().encode(values, again);
  for (int i = 0; i < kPatterns; ++i) {
    const std::uint16_t bits = patterns[i];
    if (format().IsNan(bits)) {
      ASSERT_TRUE(std::isnan(values[i])) << i;
      ASSERT_TRUE(format().IsNan(again[i])) << i;
      ASSERT_EQ(std::signbit(values[i]), (bits >> 15) != 0) << i;
      continue;
    }
    ASSERT_EQ(double{values[i]}, format().ValueOf(bits)) << i;
    ASSERT_EQ(std::signbit(values[i]), (bits >> 15) != 0) << i;
    ASSERT_EQ(again[i], bits) << i;
  }
}

// Between each two neighbours: the middle goes to the even one, a step beside it to the nearer.
TEST_P(NumberFormat, WhatLiesBetweenGoesToTheNearerAndTheMiddleToTheEven) {
  for (int i = 0; i + 1 < format().infinity(); ++i) {
    const auto low = static_cast<std::uint16_t>(i), high = static_cast<std::uint16_t>(i + 1);
    const double middle = (format().ValueOf(low) + format().ValueOf(high)) / 2;
    const auto exact = static_cast<float>(middle);
    if (double{exact} != middle) continue;  // below the smallest float: only for bfloat16
    for (const int sign : {0, 0x8000}) {
      const auto with_sign = [&](float value) { return sign == 0 ? value : -value; };
      const auto expected = [&](std::uint16_t bits) { return bits | sign; };
      ASSERT_EQ(format().Encode(with_sign(exact)), expected(i % 2 == 0 ? low : high)) << i;
      ASSERT_EQ(format().Encode(with_sign(FloatOf(BitsOf(exact) - 1))), expected(low)) << i;
      ASSERT_EQ(format().Encode(with_sign(FloatOf(BitsOf(exact) + 1))), expected(high)) << i;
    }
  }
}

TEST_P(NumberFormat, WhatIsFiniteStaysFiniteAndWhatIsNotStaysThat) {
  const auto largest = static_cast<std::uint16_t>(format().infinity() - 1);
  EXPECT_EQ(format().Encode(std::numeric_limits<float>::max()), largest);
  EXPECT_EQ(format().Encode(-std::numeric_limits<float>::max()), largest | 0x8000);
  EXPECT_EQ(format().Encode(kInfinity), format().infinity());
  EXPECT_EQ(format().Encode(-kInfinity), format().infinity() | 0x8000);
  for (const std::uint32_t nan : {0x7f800001U, 0x7fc00000U, 0xff801000U, 0xffffffffU}) {
    EXPECT_TRUE(format().IsNan(format().Encode(FloatOf(nan)))) << nan;
  }
  EXPECT_EQ(format().Encode(-0.0F), 0x8000);
  EXPECT_EQ(format().Encode(std::numeric_limits<float>::denorm_min()), 0);
}

#ifdef __FLT16_MAX__
// The compiler's own conversion, where it has one: it differs only in what it makes infinite.
TEST(Float16, IsWhatTheCompilerMakesOfRandomFloats) {
  std::mt19937 random(1);
  std::vector<float> values(1 << 20);
  for (float& value : values) value = FloatOf(static_cast<std::uint32_t>(random()));
  std::vector<Float16> encoded(values.size());
  EncodeFloat16(values, encoded);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    const auto theirs = std::bit_cast<std::uint16_t>(static_cast<_Float16>(values[i]));
    const bool overflows = std::isfinite(values[i]) && (theirs & 0x7fff) == 0x7c00;
    ASSERT_EQ(encoded[i].bits, overflows ? theirs - 1 : theirs) << values[i];
  }
}
#endif

class Float16Versions : public ::testing::TestWithParam<Float16Conversion> {
 protected:
  void SetUp() override {
    if (!GetParam().runs_here()) GTEST_SKIP() << "this machine lacks its instructions";
  }
};
INSTANTIATE_TEST_SUITE_P(Each, Float16Versions, ::testing::ValuesIn(Float16Conversions()),
                         [](const auto& one) { return std::string(one.param.name); });

// Every exponent with either sign, and fractions that differ in all of their bits.
TEST_P(Float16Versions, MakeTheBitsOfTheOneThatRunsEverywhere) {
  constexpr std::uint32_t kStride = 1021;
  std::vector<std::uint32_t> floats;
  floats.reserve((std::uint64_t{1} << 32) / kStride + 1);
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += kStride) {
    floats.push_back(static_cast<std::uint32_t>(bits));
  }
  std::vector<std::uint16_t> halves(floats.size()), expected(floats.size());
  GetParam().encode(floats.data(), halves.data(), floats.size());
  Float16Conversions().back().encode(floats.data(), expected.data(), floats.size());
  EXPECT_TRUE(halves == expected);

  std::vector<std::uint16_t> patterns(kPatterns);
  std::iota(patterns.begin(), patterns.end(), std::uint16_t{0});
  std::vector<std::uint32_t> decoded(kPatterns), right(kPatterns);
  GetParam().decode(patterns.data(), decoded.data(), patterns.size());
  Float16Conversions().back().decode(patterns.data(), right.data(), patterns.size());
  EXPECT_TRUE(decoded == right);
}

TEST_P(Float16Versions, WriteAsManyNumbersAsAreAskedForAndNoMore) {
  const std::vector<std::uint32_t> floats(40, BitsOf(1.5F));
  for (std::size_t count = 0; count <= 33; ++count) {
    std::vector<std::uint16_t> halves(40, 7);
    GetParam().encode(floats.data() + 1, halves.data() + 1, count);  // aligned to a number alone
    std::vector<std::uint32_t> back(40, 7);
    GetParam().decode(halves.data() + 1, back.data() + 1, count);
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const bool written = i >= 1 && i <= count;
      ASSERT_EQ(halves[i], written ? 0x3e00 : 7) << i << " of " << count;
      ASSERT_EQ(back[i], written ? BitsOf(1.5F) : 7) << i << " of " << count;
    }
  }
}

// The control: cutting off instead of rounding is seen by these tests.
TEST(BFloat16, CuttingOffWouldBeAnotherNumber) {
  const float value = 1.005F;
  std::vector<BFloat16> encoded(1);
  EncodeBFloat16(std::vector<float>{value}, encoded);
  EXPECT_NE(encoded[0].bits, BitsOf(value) >> 16);
}

}  // namespace
}  // namespace starling::buffer
