// SPDX-License-Identifier: Apache-2.0
#include "trainer/buffer/number_format.h"

#include <cstdint>

#include "common/status/check.h"
#include "common/vectorised/vectorised.h"
#include "trainer/buffer/float16_conversion.h"

namespace starling::buffer {
namespace {

using Bits16 = std::uint16_t;
using Bits32 = std::uint32_t;

constexpr Bits32 kSign32 = 0x80000000U;
constexpr Bits32 kInfinity32 = 0x7f800000U;

constexpr Bits32 kTooLargeBF16 = 0x7f7f8000U;  // rounds to infinity
constexpr Bits32 kLargestBF16 = 0x7f7fU;
constexpr Bits32 kQuietBF16 = 0x0040U;

// All cases are computed and one is chosen: loops without branches are vectorised.
inline Bits32 ToBFloat16(Bits32 bits) {
  const Bits32 magnitude = bits & ~kSign32;
  Bits32 result = (magnitude + 0x7fffU + (magnitude >> 16 & 1U)) >> 16;
  result = magnitude >= kTooLargeBF16 ? kLargestBF16 : result;
  result = magnitude == kInfinity32 ? kInfinity32 >> 16 : result;
  result = magnitude > kInfinity32 ? (magnitude >> 16 | kQuietBF16) : result;
  return result | (bits >> 16 & 0x8000U);
}

// The loops take pointers: versions are chosen per function. Numbers of a block are rounded before
// they are made narrow: compilers make a slower loop of both.
STARLING_VECTORISED void EncodeBFloat16Loop(const Bits32* x, Bits16* y, std::size_t n) {
  constexpr std::size_t kBlock = 64;
  Bits32 words[kBlock];
  std::size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    for (std::size_t k = 0; k < kBlock; ++k) words[k] = ToBFloat16(x[i + k]);
    for (std::size_t k = 0; k < kBlock; ++k) y[i + k] = static_cast<Bits16>(words[k]);
  }
  for (; i < n; ++i) y[i] = static_cast<Bits16>(ToBFloat16(x[i]));
}
STARLING_VECTORISED void DecodeBFloat16Loop(const Bits16* x, Bits32* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = Bits32{x[i]} << 16;
}

template <typename From, typename To>
void CheckEqual(std::span<From> from, std::span<To> to) {
  STARLING_CHECK(from.size() == to.size(), "as many numbers come out as go in");
}
template <typename To, typename From>
To BitsOf(From* numbers) {
  return reinterpret_cast<To>(numbers);
}

}  // namespace

void EncodeFloat16(std::span<const float> values, std::span<Float16> encoded) {
  CheckEqual(values, encoded);
  FastestFloat16Conversion().encode(BitsOf<const Bits32*>(values.data()),
                                    BitsOf<Bits16*>(encoded.data()), values.size());
}

void DecodeFloat16(std::span<const Float16> encoded, std::span<float> values) {
  CheckEqual(encoded, values);
  FastestFloat16Conversion().decode(BitsOf<const Bits16*>(encoded.data()),
                                    BitsOf<Bits32*>(values.data()), values.size());
}

void EncodeBFloat16(std::span<const float> values, std::span<BFloat16> encoded) {
  CheckEqual(values, encoded);
  EncodeBFloat16Loop(BitsOf<const Bits32*>(values.data()), BitsOf<Bits16*>(encoded.data()),
                     values.size());
}

void DecodeBFloat16(std::span<const BFloat16> encoded, std::span<float> values) {
  CheckEqual(encoded, values);
  DecodeBFloat16Loop(BitsOf<const Bits16*>(encoded.data()), BitsOf<Bits32*>(values.data()),
                     values.size());
}

}  // namespace starling::buffer
