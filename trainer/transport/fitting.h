// SPDX-License-Identifier: Apache-2.0
// How a connection becomes a Stream, once both ends have recognised one another.
//
// What a kind of transport still has to say to the peer, it says here, in as many steps as that
// takes: shared memory hands over a file, an encrypted link shakes hands. To add one, implement
// Fitting and return it from a Connector (dialing.h).
#pragma once

#include <poll.h>

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/net/socket.h"
#include "trainer/transport/handshake.h"
#include "trainer/transport/socket_stream.h"
#include "trainer/transport/stream.h"

namespace starling::transport {

// A connection whose ends have recognised one another.
struct Connection {
  net::FileDescriptor socket;
  Handshake handshake;  // in which they did
  bool dialer = false;  // whether this end dialled
};

// Never blocks. Confined to the thread that opens a view.
class Fitting {
 public:
  // Ends the connection, unless its stream was taken.
  virtual ~Fitting() = default;
  // Goes on as far as it can: the stream, once; null while the peer's part has not come: again then
  // when fd() is ready for events(). RESOURCE_EXHAUSTED is our own trouble, all else the peer's.
  virtual absl::StatusOr<std::unique_ptr<Stream>> Step() = 0;
  virtual int fd() const = 0;
  virtual short events() const { return POLLIN; }
};

// The stream is the connection itself.
class SocketFitting final : public Fitting {
 public:
  explicit SocketFitting(net::FileDescriptor socket) : socket_(std::move(socket)) {}
  absl::StatusOr<std::unique_ptr<Stream>> Step() override {
    return std::make_unique<SocketStream>(std::move(socket_));
  }
  int fd() const override { return socket_.get(); }

 private:
  net::FileDescriptor socket_;
};

}  // namespace starling::transport
