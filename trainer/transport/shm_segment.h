// SPDX-License-Identifier: Apache-2.0
// The memory that the two ends of one link share: a pair of rings, for one view, never reused.
//
// The dialer makes it (see sealed_memory.h) and hands it over the connection, after the handshake.
// A process that was paused inside a copy and wakes views later writes into memory that nobody else
// looks at any more.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/socket.h"
#include "trainer/transport/sealed_memory.h"
#include "trainer/transport/shm_ring.h"

namespace starling::transport {

inline constexpr std::size_t kMinRingBytes = 64 << 10;
inline constexpr std::size_t kMaxRingBytes = 1 << 20;

// What a ring gets in a view of `members`: all of a member's rings together stay below 64 MiB as
// long as the least size allows.
std::size_t RingBytesFor(std::size_t members);

// Thread-compatible.
class ShmSegment {
 public:
  ShmSegment() = default;

  // A new one, and its file. RESOURCE_EXHAUSTED when the system's limits leave no room.
  struct Made;
  static absl::StatusOr<Made> Make(std::size_t ring_bytes);

  // Maps the file that a peer handed over. UNAVAILABLE unless its size is what `ring_bytes` demands
  // and sealed.
  static absl::StatusOr<ShmSegment> Map(const net::FileDescriptor& file, std::size_t ring_bytes);

  // Ring 0 is written by the dialer, ring 1 by the acceptor.
  Ring ring(int index) const;

 private:
  ShmSegment(SealedMemory memory, std::size_t ring_bytes)
      : memory_(std::move(memory)), ring_bytes_(ring_bytes) {}

  SealedMemory memory_;
  std::size_t ring_bytes_ = 0;
};

struct ShmSegment::Made {
  ShmSegment segment;
  net::FileDescriptor file;
};

// What the dialer says first on an accepted connection. Without a file the connection itself is to
// carry the bytes.
struct Offer {
  std::size_t ring_bytes = 0;
  net::FileDescriptor file;
};

absl::Status SendOffer(const net::FileDescriptor& socket, const Offer& offer);
// Nothing while it has not come. UNAVAILABLE when the peer closed or said something else.
absl::StatusOr<std::optional<Offer>> ReceiveOffer(const net::FileDescriptor& socket);

}  // namespace starling::transport
