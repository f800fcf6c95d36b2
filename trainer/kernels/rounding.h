// SPDX-License-Identifier: Apache-2.0
// Numbers of 32 bits, rounded in place to those that a narrower format has: to nearest, ties to
// even, and to infinity beyond its largest number, as hardware that computes in the format does.
// (What travels in 16 bits, trainer/buffer/number_format.h, stops at the largest number instead.)
// As in span_math.h results are the same bits on every instruction set, and nothing allocates.
#pragma once

#include <cstdint>
#include <span>

namespace starling::kernels {

// IEEE 754 half precision: 11 significant bits, multiples of 2^-24 below 2^-14, at most 65504.
void RoundToFloat16(std::span<float> values);
// The upper 16 bits of 32: 8 significant bits, the same range.
void RoundToBfloat16(std::span<float> values);

// Fixed point: multiples of `step`, a power of two, from `lowest` to `highest`, at which others
// stop. What is no number stays so.
struct FixedPointGrid {
  float step = 1;
  float lowest = 0;
  float highest = 0;
};
void RoundToGrid(const FixedPointGrid& grid, std::span<float> values);
// Stochastic rounding: up with the probability that makes the mean right, by one draw of 32 bits
// for each number.
void RoundToGridByDraws(const FixedPointGrid& grid, std::span<const std::uint32_t> draws,
                        std::span<float> values);

}  // namespace starling::kernels
