// SPDX-License-Identifier: Apache-2.0
#include "trainer/compression/levels.h"

#include <algorithm>
#include <bit>

namespace starling::compression {
namespace {

constexpr int kBitsOfByte = 8;

}  // namespace

int LevelBits(std::int64_t most) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(2 * most)));
}

std::size_t PackedBytes(std::size_t count, std::int64_t most) {
  return (count * static_cast<std::size_t>(LevelBits(most)) + kBitsOfByte - 1) / kBitsOfByte;
}

void PackLevels(std::span<const std::int32_t> levels, std::int64_t most,
                std::span<std::byte> bytes) {
  const int width = LevelBits(most);
  std::uint64_t waiting = 0;  // bits that are no byte yet, the first the lowest
  int bits = 0;
  std::size_t at = 0;
  for (const std::int32_t level : levels) {
    waiting |= static_cast<std::uint64_t>(level + most) << bits;
    for (bits += width; bits >= kBitsOfByte; bits -= kBitsOfByte, waiting >>= kBitsOfByte) {
      bytes[at++] = static_cast<std::byte>(waiting);
    }
  }
  if (bits > 0) bytes[at] = static_cast<std::byte>(waiting);
}

absl::Status UnpackLevels(std::span<const std::byte> bytes, std::int64_t most,
                          std::span<std::int32_t> levels) {
  if (bytes.size() != PackedBytes(levels.size(), most)) {
    return absl::OutOfRangeError("its levels have another size");
  }
  const int width = LevelBits(most);
  const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
  std::uint64_t waiting = 0, largest = 0;
  int bits = 0;
  std::size_t at = 0;
  for (std::int32_t& level : levels) {
    for (; bits < width; bits += kBitsOfByte) {
      waiting |= std::to_integer<std::uint64_t>(bytes[at++]) << bits;
    }
    const std::uint64_t code = waiting & mask;
    largest = std::max(largest, code);
    level = static_cast<std::int32_t>(static_cast<std::int64_t>(code) - most);
    waiting >>= width;
    bits -= width;
  }
  if (waiting != 0 || largest > static_cast<std::uint64_t>(2 * most)) {
    return absl::OutOfRangeError("a level is beyond the largest");
  }
  return absl::OkStatus();
}

}  // namespace starling::compression
