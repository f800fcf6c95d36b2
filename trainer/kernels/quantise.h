// SPDX-License-Identifier: Apache-2.0
// Numbers as few levels: what int8 and logarithmic codecs are made of. As in span_math.h results
// are the same bits on every instruction set, and nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace starling::kernels {

inline constexpr int kLargestInt8 = 127;

// Each number is rounded to the nearest multiple of `scale`, ties to even, of at most 127 of them,
// which are written. `scale` is above 0, and so is one divided by it.
void QuantiseInt8(std::span<const float> values, float scale, std::span<std::int8_t> levels);
void DequantiseInt8(std::span<const std::int8_t> levels, float scale, std::span<float> values);
// Adds the levels to `sums`. False if one is -128, which QuantiseInt8 does not make.
bool AddInt8(std::span<const std::int8_t> levels, std::span<std::int32_t> sums);
// The scale by which the sum of the squares of what is lost is least, or nearly so: Newton's
// iteration for the best magnitude to clip at (Sakr et al. 2022, "Optimal Clipping and
// Magnitude-aware Differentiation") on a sample, if what it finds loses less than no clipping does.
// 0 where all numbers are 0, or so small that a scale could not be divided by.
float Int8Scale(std::span<const float> values);

// Logarithmic numbers of 8 bits: bit 7 is the sign, and the others say e of 2^(exponent - e / 8);
// the last, 127, says 0, which is what becomes of numbers below the smallest. The nearest by its
// logarithm is taken. Magnitudes are at most 2^exponent.
inline constexpr int kLogSteps = 8;  // of a factor of two
void QuantiseLog(std::span<const float> values, int exponent, std::span<std::uint8_t> codes);

}  // namespace starling::kernels
