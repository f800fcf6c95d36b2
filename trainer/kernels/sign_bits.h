// SPDX-License-Identifier: Apache-2.0
// Signs of numbers as bits, and the means of both sides: what 1-bit codecs are made of. As in
// span_math.h results are the same bits on every instruction set, and nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace starling::kernels {

// Means of the numbers below 0, and of those that are not; 0 where there is none. -0 is not below.
struct SignMeans {
  float below = 0, above = 0;
};
SignMeans MeansBySign(std::span<const float> values);

// Words of 32 bits that so many signs take.
constexpr std::size_t SignWords(std::size_t count) { return (count + 31) / 32; }
// A bit for each number, set where it is not below 0, the lowest of the first byte first, to all
// SignWords(values.size()) words of `bytes`: what is spare is 0.
void PackSigns(std::span<const float> values, std::span<std::byte> bytes);
// Each number is means.above where its bit is set, else means.below.
void UnpackSigns(std::span<const std::byte> bytes, const SignMeans& means, std::span<float> values);

}  // namespace starling::kernels
