// SPDX-License-Identifier: Apache-2.0
// Numbers as -1, 0 or 1, drawn: what the ternGrad codec is made of. Four a byte, the first in the
// lowest two bits: 0 for -1, 1 for 0, 2 for 1; what is spare is 0. As in span_math.h results are
// the same bits on every instruction set, and nothing allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace starling::kernels {

// Random bits: those of byte i are the four words of random::Philox4x32 (common/random) of the
// counter {i, counter[0], counter[1], 0} under `key`.
struct TernaryDraws {
  std::array<std::uint32_t, 2> key = {};
  std::array<std::uint32_t, 2> counter = {};
};

inline constexpr std::size_t kTernaryPerByte = 4;
constexpr std::size_t TernaryBytes(std::size_t count) {
  return (count + kTernaryPerByte - 1) / kTernaryPerByte;
}

// A finite number becomes its sign with the probability of its magnitude, at most `clip`, times
// `inverse`, and else 0. Fills all of `codes`, TernaryBytes(values.size()).
void DrawTernary(std::span<const float> values, float clip, double inverse,
                 const TernaryDraws& draws, std::span<std::byte> codes);

// The numbers times `scale`. False if a code is none of the three, or a spare one is not 0; then
// `values` are unspecified.
bool FromTernary(std::span<const std::byte> codes, float scale, std::span<float> values);
// Adds the numbers to `sums`. As FromTernary.
bool AddTernary(std::span<const std::byte> codes, std::span<std::int32_t> sums);

}  // namespace starling::kernels
