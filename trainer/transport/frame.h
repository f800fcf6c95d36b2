// SPDX-License-Identifier: Apache-2.0
// What stands before every payload on a link.
//
// Little-endian, 40 bytes. The view is in every frame although a link belongs to one: bytes of an
// old view must not enter a sum of a new one, whatever else goes wrong.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace starling::transport {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

struct FrameHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t channel = 0;
  std::uint64_t view = 0;
  std::uint64_t step = 0;
  std::uint64_t length = 0;   // bytes of payload that follow
  std::int64_t departed = 0;  // shaped links: when the last byte left, nanoseconds, monotonic

  static constexpr std::uint32_t kMagic = 0x314d5453;  // "STM1"
};
inline constexpr std::size_t kHeaderBytes = sizeof(FrameHeader);
static_assert(kHeaderBytes == 40);

// No payload is longer; a header that says so is not ours.
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{1} << 40;

// The last frame of a link, on this channel, tells in `step` why it ends: kOrderly, kAborted, or
// kBlaming + r when this end lost rank r. A link that ends without one has a dead peer.
inline constexpr std::uint32_t kFarewellChannel = 0xffffffff;
inline constexpr std::uint64_t kOrderly = 0;
inline constexpr std::uint64_t kAborted = 1;
inline constexpr std::uint64_t kBlaming = 2;
inline constexpr std::uint64_t kSilent = ~std::uint64_t{0};  // never sent: no farewell

// Frames by which the ranks of a view agree on an arena.
inline constexpr std::uint32_t kArenaChannel = 0xfffffffe;

inline std::array<std::byte, kHeaderBytes> Encode(const FrameHeader& header) {
  return std::bit_cast<std::array<std::byte, kHeaderBytes>>(header);
}
inline FrameHeader DecodeHeader(const std::byte* bytes) {
  FrameHeader header;
  std::memcpy(&header, bytes, kHeaderBytes);
  return header;
}

}  // namespace starling::transport
