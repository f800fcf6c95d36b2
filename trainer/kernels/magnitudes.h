// SPDX-License-Identifier: Apache-2.0
// Magnitudes of numbers: how large they are at most, and which are large. As in span_math.h results
// are the same on every instruction set.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace starling::kernels {

// The largest magnitude of finite numbers; 0 of none.
float LargestMagnitude(std::span<const float> values);

// The places, ascending, of the numbers that are not 0 and whose magnitude is at least `threshold`.
std::vector<std::uint32_t> AtLeast(std::span<const float> values, float threshold);

}  // namespace starling::kernels
