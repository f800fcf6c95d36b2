// SPDX-License-Identifier: Apache-2.0
#include "trainer/buffer/float16_conversion.h"

#include <algorithm>
#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace starling::buffer {
namespace {

using Bits16 = std::uint16_t;
using Bits32 = std::uint32_t;

constexpr Bits32 kSign32 = 0x80000000U;
constexpr Bits32 kInfinity32 = 0x7f800000U;
constexpr Bits32 kHalf32 = 0x3f000000U;  // 0.5F, whose last bit is 2^-24: float16's smallest number
constexpr Bits32 kQuiet32 = 0x00400000U;

// Exponents of float16 are smaller by 127 - 15 = 112.
constexpr Bits32 kRebias = 112U << 23;
constexpr Bits32 kSmallestNormal16 = 113U << 23;  // 2^-14 as a float
constexpr Bits32 kTooLarge16 = 0x477ff000U;       // 65520, which rounds beyond 65504
constexpr Bits32 kLargest16 = 0x7bffU;
constexpr Bits32 kInfinity16 = 0x7c00U;
constexpr Bits32 kQuiet16 = 0x0200U;

// All cases are computed and one is chosen: loops without branches are vectorised.
inline Bits16 ToFloat16(Bits32 bits) {
  const Bits32 magnitude = bits & ~kSign32;
  const Bits32 normal = (magnitude - kRebias + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
  // The addition rounds to a multiple of 2^-24, which is what a subnormal float16 counts.
  const Bits32 subnormal = std::bit_cast<Bits32>(std::bit_cast<float>(magnitude) + 0.5F) - kHalf32;
  const Bits32 nan = kInfinity16 | kQuiet16 | (magnitude >> 13 & 0x3ffU);
  Bits32 result = magnitude < kSmallestNormal16 ? subnormal : normal;
  result = magnitude >= kTooLarge16 ? kLargest16 : result;
  result = magnitude == kInfinity32 ? kInfinity16 : result;
  result = magnitude > kInfinity32 ? nan : result;
  return static_cast<Bits16>(result | (bits >> 16 & 0x8000U));
}

inline Bits32 FromFloat16(Bits16 half) {
  const Bits32 magnitude = half & 0x7fffU;
  const Bits32 normal = (magnitude << 13) + kRebias;
  const Bits32 subnormal = std::bit_cast<Bits32>(std::bit_cast<float>(kHalf32 + magnitude) - 0.5F);
  Bits32 result = magnitude < 0x400U ? subnormal : normal;
  result = magnitude >= kInfinity16 ? (magnitude << 13) + 2 * kRebias : result;
  result |= magnitude > kInfinity16 ? kQuiet32 : 0;
  return result | (half & 0x8000U) << 16;
}

bool Always() { return true; }
void EncodeByBits(const Bits32* floats, Bits16* halves, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) halves[i] = ToFloat16(floats[i]);
}
void DecodeByBits(const Bits16* halves, Bits32* floats, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) floats[i] = FromFloat16(halves[i]);
}

#if defined(__x86_64__)
constexpr std::size_t kLanes = 8;

bool HasF16c() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"); }

__attribute__((target("avx2,f16c"))) void EncodeByF16c(const Bits32* floats, Bits16* halves,
                                                       std::size_t count) {
  constexpr float kLargest = 65504;
  const __m256i infinity = _mm256_set1_epi32(kInfinity32);
  const __m256 highest = _mm256_set1_ps(kLargest), lowest = _mm256_set1_ps(-kLargest);
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(floats + i));
    const __m256 value = _mm256_castsi256_ps(bits);
    // The instruction makes infinite what is beyond the largest; what was not finite stays as it
    // is.
    const __m256i not_finite = _mm256_cmpeq_epi32(_mm256_and_si256(bits, infinity), infinity);
    const __m256 bounded = _mm256_max_ps(_mm256_min_ps(value, highest), lowest);
    const __m256 chosen = _mm256_blendv_ps(bounded, value, _mm256_castsi256_ps(not_finite));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + i),
                     _mm256_cvtps_ph(chosen, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  EncodeByBits(floats + whole, halves + whole, count - whole);
}

__attribute__((target("avx2,f16c"))) void DecodeByF16c(const Bits16* halves, Bits32* floats,
                                                       std::size_t count) {
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(floats + i),
                        _mm256_castps_si256(_mm256_cvtph_ps(half)));
  }
  DecodeByBits(halves + whole, floats + whole, count - whole);
}
#endif

constexpr Float16Conversion kTable[] = {
#if defined(__x86_64__)
    {"F16c", HasF16c, EncodeByF16c, DecodeByF16c},
#endif
    {"Bits", Always, EncodeByBits, DecodeByBits},
};

}  // namespace

std::span<const Float16Conversion> Float16Conversions() { return kTable; }

const Float16Conversion& FastestFloat16Conversion() {
  static const Float16Conversion& kFastest =
      *std::ranges::find_if(kTable, [](const Float16Conversion& one) { return one.runs_here(); });
  return kFastest;
}

}  // namespace starling::buffer
