// SPDX-License-Identifier: Apache-2.0
// The listening side of a transport: recognises dialers, parks those of later views.
//
// One thread polls the listeners, the connections that have proved nothing yet and those that are
// parked. It is not on the way of any payload: a connection that was accepted belongs to the mesh.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/deadline.h"
#include "common/net/socket.h"
#include "common/sync/mutex.h"
#include "trainer/transport/fitting.h"
#include "trainer/transport/handshake.h"
#include "trainer/transport/transport.h"

namespace starling::transport {

// The links of one view that are dialled to us. Guarded by the acceptor's mutex.
struct Opening {
  std::map<std::string, int> expected;              // members still to come, ranks
  std::vector<std::pair<int, Connection>> arrived;  // not taken yet
  net::EventFd event;                               // when something arrived
};

// Thread-safe.
class Acceptor {
 public:
  // Without listeners, connections come by Inject only.
  Acceptor(std::vector<net::FileDescriptor> listeners, const Options& options);
  ~Acceptor();

  // A connection from a dialer of this process.
  void Inject(net::FileDescriptor socket);

  // Installs `view`: from now on, and from the parked ones, the members in `expected` are accepted
  // into the result. FAILED_PRECONDITION when the fence is higher, or the view was opened before.
  absl::StatusOr<std::shared_ptr<Opening>> Open(std::uint64_t view,
                                                std::map<std::string, int> expected);
  // What has arrived since the last call.
  std::vector<std::pair<int, Connection>> Take(Opening& opening);
  // Ranks that have not dialled.
  std::vector<int> Missing(const Opening& opening) const;
  // No more links of that view.
  void Finish(const std::shared_ptr<Opening>& opening);

  void Fence(std::uint64_t view);
  std::uint64_t fence() const;

 private:
  // A connection that has not yet proved that it knows the key.
  struct Stranger {
    net::FileDescriptor socket;
    net::Deadline deadline = net::Deadline::Never();
    HelloBytes hello_bytes = {};
    ProofBytes proof = {};
    std::size_t received = 0;              // of the message that is due
    std::unique_ptr<Handshake> handshake;  // once the Hello is here
    Hello hello;
  };
  struct Parked {
    net::FileDescriptor socket;
    Handshake handshake;
  };
  using ParkedKey = std::pair<std::uint64_t, std::string>;  // view, dialer
  enum class Next { kWait, kDrop, kProved };

  void Run();
  // One round of the thread: what to poll, and what came of it.
  std::vector<int> PollAll();
  void AcceptAll(const net::FileDescriptor& listener) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Admit(net::FileDescriptor socket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Next Advance(Stranger& stranger) const;
  void Decide(Stranger stranger) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AcceptInto(Opening& opening, const std::string& member, net::FileDescriptor socket,
                  const Handshake& handshake) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(net::FileDescriptor socket, const Handshake& handshake, Answer answer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RaiseFence(std::uint64_t view) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<net::FileDescriptor> listeners_;
  const std::string member_;
  const std::uint64_t network_;  // that is emulated
  const std::string key_;
  const bool encrypted_;
  const std::size_t max_half_open_;
  const std::size_t max_parked_;
  const absl::Duration handshake_timeout_;
  net::EventFd wake_;

  mutable sync::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t fence_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t opened_view_ ABSL_GUARDED_BY(mutex_) = 0;  // meaningful once opened_
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Opening> opening_ ABSL_GUARDED_BY(mutex_);  // of opened_view_; null when done
  std::list<Stranger> strangers_ ABSL_GUARDED_BY(mutex_);     // oldest first
  std::map<ParkedKey, Parked> parked_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace starling::transport
