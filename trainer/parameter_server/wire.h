// SPDX-License-Identifier: Apache-2.0
// Messages of servers and clients as bytes: a prefix of fixed size, a head with the fields, a body
// with what is large (an update's values, a snapshot, values).
//
// The prefix says how long head and body are, so that a receiver gives the body a buffer of its own
// before it arrives; what is decoded refers to that buffer and copies nothing of it. Every count is
// held against the bytes that are there. To add a message: a case in EncodeHead and one in
// DecodeHead, at the end of the variant.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/parameter_server/messages.h"

namespace starling::parameter_server {

struct Prefix {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t type = 0;   // index in Message
  std::uint64_t shard = 0;  // its number in the view
  std::uint64_t head_bytes = 0;
  std::uint64_t body_bytes = 0;

  static constexpr std::uint32_t kMagic = 0x31505453;  // "STP1"
  static constexpr std::uint16_t kVersion = 3;
};
inline constexpr std::size_t kPrefixBytes = sizeof(Prefix);
static_assert(kPrefixBytes == 32);

// What a receiver is ready to allocate for a message of a peer that has proved who it is.
inline constexpr std::uint64_t kMaxHeadBytes = std::uint64_t{1} << 26;
inline constexpr std::uint64_t kMaxBodyBytes = std::uint64_t{1} << 34;

struct Packet {
  std::array<std::byte, kPrefixBytes> prefix;
  std::string head;
  std::shared_ptr<const std::string> body;  // null: none
};

Packet EncodePacket(std::uint64_t shard, const Message& message);

// DATA_LOSS for what is no prefix of ours, or announces more than the limits.
absl::StatusOr<Prefix> DecodePrefix(std::span<const std::byte> bytes);
// DATA_LOSS for a head that does not say what its type must. `body` becomes part of the message.
absl::StatusOr<Message> DecodeMessage(const Prefix& prefix, std::string_view head,
                                      std::shared_ptr<const std::string> body);

}  // namespace starling::parameter_server
