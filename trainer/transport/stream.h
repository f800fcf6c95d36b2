// SPDX-License-Identifier: Apache-2.0
// What carries the bytes of one link, once both ends have recognised one another.
//
// Links (frames, tags, farewells), the mesh, shaping and the ledger know nothing else of a kind of
// transport. There are two: SocketStream, the connection itself or a way to who sends datagrams
// (udp_relay.h), and ShmStream, a pair of rings in shared memory beside it; EncryptedStream lies
// over another. To add one, implement Stream and let a Connector (dialing.h) fit it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "common/net/socket.h"

namespace starling::transport {

// What a link waits for.
struct Interest {
  bool input = false;
  bool output = false;
  bool hangup = false;  // of the peer
  bool bell = false;    // a RingBell of it
};

// What to do about it: poll fd() for `events` (0: nothing to wait for), but do not sleep if
// `ready`.
struct Attention {
  short events = 0;
  bool ready = false;
};

// Bytes that travelled beside those that were written and read.
struct Overhead {
  std::size_t sent = 0;
  std::size_t received = 0;
};

// Never blocks. Confined to its link.
class Stream {
 public:
  // Ends the connection.
  virtual ~Stream() = default;

  // Moves as much as it can at once, in order; how much that was (0: nothing now). UNAVAILABLE when
  // the peer is gone (Read: and everything it wrote was read), INTERNAL when it broke the rules.
  // What Write has not counted it is given again, the same bytes first.
  virtual absl::StatusOr<std::size_t> Write(std::span<const iovec> pieces) = 0;
  virtual absl::StatusOr<std::size_t> Read(std::span<const iovec> pieces) = 0;

  // Before a sleep: from now on whatever `interest` names wakes who polls as the result says.
  virtual Attention Await(const Interest& interest) = 0;
  // After it.
  virtual void OnWoken(short events) = 0;
  // The poll, or a failed Write, says that the peer has closed: Read then finds the end.
  virtual void OnHangup() = 0;

  // Writes `last` (a farewell: small, or nothing) whole or not at all, and ends the connection.
  // If `orderly`, the peer can still read all that was written.
  virtual void Finish(std::span<const std::byte> last, bool orderly) = 0;

  virtual int fd() const = 0;
  // Whether the peer computes on the same cores as we, and can share memory with us.
  virtual bool shares_cores() const = 0;
  virtual bool encrypted() const { return false; }
  virtual bool datagrams() const { return false; }
  // What the stream itself has added since the last call.
  virtual Overhead TakeOverhead() { return {}; }

  // Only between ends that share memory. Wakes the peer if it sleeps. Hands over a file, of which
  // the peer holds one at a time, until it takes it: false when that cannot be done now.
  virtual void RingBell() {}
  virtual bool PassFile(const net::FileDescriptor& /*file*/) { return false; }
  virtual net::FileDescriptor TakeFile() { return {}; }
};

}  // namespace starling::transport
