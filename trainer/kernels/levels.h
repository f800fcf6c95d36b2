// SPDX-License-Identifier: Apache-2.0
// Integers from -most to most in as few bits as they need, one after another, the first in the
// lowest bits: what sums of levels (compression::LevelSums) are made of. `most` is from 1 to 2^30.
// As in span_math.h results are the same on every instruction set, and nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace starling::kernels {

// Of one.
int LevelBits(std::int64_t most);
std::size_t PackedBytes(std::size_t count, std::int64_t most);

// Fills all of `bytes`, PackedBytes(levels.size(), most); spare bits are 0.
void PackLevels(std::span<const std::int32_t> levels, std::int64_t most,
                std::span<std::byte> bytes);
// False for bytes that PackLevels does not make, another number of them too; then `levels` are
// unspecified.
bool UnpackLevels(std::span<const std::byte> bytes, std::int64_t most,
                  std::span<std::int32_t> levels);

// The numbers that they stand for: each times `scale`.
void ScaleLevels(std::span<const std::int32_t> levels, float scale, std::span<float> values);

}  // namespace starling::kernels
