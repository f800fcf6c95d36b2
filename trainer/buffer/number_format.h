// SPDX-License-Identifier: Apache-2.0
// Floats of 32 bits as floats of 16, and back.
//
//   float16   1 sign, 5 exponent, 10 fraction bits (IEEE 754 binary16): within 2^-11 of the number
//             from 6.1e-5 to 65504, and steps of 6e-8 below
//   bfloat16  the upper 16 bits of a float: within 2^-8, over the whole range of a float
//
// Encoding rounds to nearest, ties to even. What is finite stays finite: a number beyond the
// largest of the format becomes the largest, with its sign. (IEEE 754 would make it infinite. One
// such element among millions would then look like a training run that has diverged, and end it;
// where error feedback is on, what was cut off is sent with later updates.) Infinities stay
// infinite and NaNs stay NaNs, so a run that has diverged is still seen. Decoding is exact, so
// encoding what was decoded gives the same bits.
//
// Spans of one call have equal lengths (a broken invariant otherwise) and do not overlap.
#pragma once

#include <span>

#include "trainer/buffer/buffer.h"

namespace starling::buffer {

inline constexpr float kLargestFloat16 = 65504;

void EncodeFloat16(std::span<const float> values, std::span<Float16> encoded);
void DecodeFloat16(std::span<const Float16> encoded, std::span<float> values);
void EncodeBFloat16(std::span<const float> values, std::span<BFloat16> encoded);
void DecodeBFloat16(std::span<const BFloat16> encoded, std::span<float> values);

}  // namespace starling::buffer
