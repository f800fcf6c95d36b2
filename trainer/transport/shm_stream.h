// SPDX-License-Identifier: Apache-2.0
// A Stream through shared memory: a ring each way, and the socket that introduced the two.
//
// The socket carries no payload. It is used to wake a sleeping end (one byte, so that one poll
// waits for all links, shared memory or not, and for cancellation), and to notice death: the kernel
// closes the socket of a peer that dies in any way, which a futex in shared memory would not
// report.
#pragma once

#include "common/net/socket.h"
#include "trainer/transport/shm_segment.h"
#include "trainer/transport/stream.h"

namespace starling::transport {

// Confined to its link.
class ShmStream final : public Stream {
 public:
  // `dialer`: whether this is the end that dialled, and made the segment.
  ShmStream(net::FileDescriptor socket, ShmSegment segment, bool dialer);

  absl::StatusOr<std::size_t> Write(std::span<const iovec> pieces) override;
  absl::StatusOr<std::size_t> Read(std::span<const iovec> pieces) override;
  Attention Await(const Interest& interest) override;
  void OnWoken(short events) override;
  void OnHangup() override { EmptySocket(); }
  void Finish(std::span<const std::byte> last, bool orderly) override;
  int fd() const override { return socket_.get(); }
  bool shares_cores() const override { return true; }
  void RingBell() override;
  bool PassFile(const net::FileDescriptor& file) override;
  net::FileDescriptor TakeFile() override;

 private:
  // Takes the bell's bytes and the file that comes with one, and learns whether the peer is gone.
  void EmptySocket();

  net::FileDescriptor socket_;
  const ShmSegment segment_;
  RingWriter writer_;
  RingReader reader_;
  net::FileDescriptor file_;  // from the peer, until it is taken
  unsigned empty_reads_ = 0;
  bool ended_ = false;  // the peer's side of the socket
};

}  // namespace starling::transport
