// SPDX-License-Identifier: Apache-2.0
// Sockets that close themselves and whose errors name the address.
//
// Everything is close-on-exec and nonblocking. Listeners set SO_REUSEADDR and never SO_REUSEPORT:
// two processes on one port must be an error, not a lottery.
#pragma once

#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/address.h"
#include "common/net/deadline.h"

namespace starling::net {

// Owns a file descriptor. Thread-compatible.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset();

 private:
  int fd_ = -1;
};

// Wakes a thread that polls get(). Thread-safe, except moving and destruction.
class EventFd {
 public:
  EventFd();  // ends the process when the system has no descriptor left
  int get() const { return fd_.get(); }
  void Signal();
  void Drain();

 private:
  FileDescriptor fd_;
};

// A listener on `address`; port 0 lets the system choose (see LocalAddress). UNAVAILABLE, with the
// address, when it is taken or not ours.
absl::StatusOr<FileDescriptor> Listen(const Address& address, int backlog = 128);

// The next waiting connection, with TCP_NODELAY set, or an invalid descriptor when none waits (or
// when the one that did has gone).
absl::StatusOr<FileDescriptor> Accept(const FileDescriptor& listener);

// Begins to connect, from the address `source` (its port may be 0) if given. The socket becomes
// writable when ConnectResult is due.
absl::StatusOr<FileDescriptor> StartConnect(const Address& address,
                                            const std::optional<Address>& source = std::nullopt);

// How a started connect ended: OK, or UNAVAILABLE with the address and the reason.
absl::Status ConnectResult(const FileDescriptor& socket, const Address& address);

// StartConnect and ConnectResult with a wait of at most `deadline` between (DEADLINE_EXCEEDED).
absl::StatusOr<FileDescriptor> Connect(const Address& address, Deadline deadline,
                                       const std::optional<Address>& source = std::nullopt);

// Of a connection whose ends are loopback addresses, or one address: a congestion control that
// spaces packets in time (BBR, if the system's) halves the rate there for nothing. This end gets
// one that does not, and a send buffer so small that what is in it stays in the caches.
void SendUnpacedOnOneMachine(const FileDescriptor& socket);

// The address of this end of a socket, and of the other.
absl::StatusOr<Address> LocalAddress(const FileDescriptor& socket);
absl::StatusOr<Address> PeerAddress(const FileDescriptor& socket);

// Two connected stream sockets (UNIX domain), for peers inside one process.
absl::StatusOr<std::pair<FileDescriptor, FileDescriptor>> SocketPair();

// Whether a call that does not block is only to be made again later, by what errno says.
inline bool NotNow(int error) { return error == EAGAIN || error == EINTR; }

// A status of errno value `error`: "<what>: <text of the error>". Refused, reset, unreachable and
// address trouble are UNAVAILABLE, lack of descriptors or memory RESOURCE_EXHAUSTED.
absl::Status ErrnoStatus(int error, std::string_view what);

}  // namespace starling::net
