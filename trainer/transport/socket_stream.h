// SPDX-License-Identifier: Apache-2.0
// A Stream that is a connected socket: TCP between hosts, a socket pair inside a process.
#pragma once

#include "common/net/socket.h"
#include "trainer/transport/stream.h"

namespace starling::transport {

// Confined to its link.
class SocketStream : public Stream {
 public:
  explicit SocketStream(net::FileDescriptor socket) : socket_(std::move(socket)) {}

  absl::StatusOr<std::size_t> Write(std::span<const iovec> pieces) override;
  absl::StatusOr<std::size_t> Read(std::span<const iovec> pieces) override;
  Attention Await(const Interest& interest) override;
  void OnWoken(short) override {}
  void OnHangup() override {}
  void Finish(std::span<const std::byte> last, bool orderly) override;
  int fd() const override { return socket_.get(); }
  bool shares_cores() const override { return false; }  // not that one could tell

 private:
  net::FileDescriptor socket_;
};

}  // namespace starling::transport
