// SPDX-License-Identifier: Apache-2.0
// The dialling side of one handshake, as a machine that never blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/deadline.h"
#include "common/net/socket.h"
#include "trainer/transport/fitting.h"
#include "trainer/transport/handshake.h"

namespace starling::transport {

// How a kind of transport reaches an address, and what it makes of the connection. Thread-safe.
class Connector {
 public:
  virtual ~Connector() = default;
  // Begins to connect; the socket becomes writable when Result is due.
  virtual absl::StatusOr<net::FileDescriptor> Start(const std::string& address) = 0;
  virtual absl::Status Result(const net::FileDescriptor& socket, const std::string& address) = 0;

  // Makes of an accepted connection what carries the link of a view of `members`.
  virtual std::unique_ptr<Fitting> Fit(Connection connection, std::size_t members) = 0;
};

// Confined to the thread that opens a view.
class Dialing {
 public:
  // `hello` but for the nonce. A peer that cannot be connected to is tried again until `deadline`.
  Dialing(Connector& connector, std::string address, Hello hello, std::string key,
          net::Deadline deadline)
      : connector_(connector),
        address_(std::move(address)),
        hello_(std::move(hello)),
        key_(std::move(key)),
        deadline_(deadline) {}

  // Goes on as far as it can. An error is final and says what the peer did.
  absl::Status Step();

  bool done() const { return stage_ == Stage::kDone; }
  // What to poll for before the next Step; fd -1 and events 0 while it only waits for `wake`.
  int fd() const { return socket_.get(); }
  short events() const;
  net::Deadline wake() const { return wake_; }
  // Once, when done.
  Connection TakeConnection() { return {std::move(socket_), *handshake_, /*dialer=*/true}; }

 private:
  enum class Stage { kIdle, kConnecting, kChallenge, kVerdict, kDone };

  absl::Status Connect();
  absl::Status SendHello();
  absl::Status OnChallenge();
  absl::Status OnVerdict();
  // Later, unless the deadline has passed: then `why` is final.
  absl::Status TryAgain(absl::Status why);
  // True when `due` is full. UNAVAILABLE when the peer closed.
  absl::StatusOr<bool> Fill(std::span<std::byte> due);

  Connector& connector_;
  const std::string address_;
  Hello hello_;
  const std::string key_;
  const net::Deadline deadline_;
  net::Deadline wake_ = net::Deadline::Never();
  Stage stage_ = Stage::kIdle;
  net::FileDescriptor socket_;
  std::unique_ptr<Handshake> handshake_;
  ChallengeBytes challenge_ = {};
  VerdictBytes verdict_ = {};
  std::size_t received_ = 0;
};

}  // namespace starling::transport
