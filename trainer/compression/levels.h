// SPDX-License-Identifier: Apache-2.0
// Integers from -most to most in as few bits as they need, one after another: sums of levels
// (LevelSums in codec.h). `most` is from 1 to 2^30.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace starling::compression {

// Of one.
int LevelBits(std::int64_t most);
std::size_t PackedBytes(std::size_t count, std::int64_t most);

// Fills the first PackedBytes of `bytes`; spare bits are 0.
void PackLevels(std::span<const std::int32_t> levels, std::int64_t most,
                std::span<std::byte> bytes);
// OUT_OF_RANGE for bytes that PackLevels does not make.
absl::Status UnpackLevels(std::span<const std::byte> bytes, std::int64_t most,
                          std::span<std::int32_t> levels);

}  // namespace starling::compression
