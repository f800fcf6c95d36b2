// SPDX-License-Identifier: Apache-2.0
// Carries the bytes of links in datagrams: one thread for all links of a transport.
//
// A link knows nothing of it. What it writes into its end of a pair of sockets the relay reads from
// the other end, sends in datagrams, and repeats until it has arrived (udp_window.h); what comes in
// datagrams the relay puts in order and writes into the pair. The connection over which both ends
// recognised one another carries nothing any more. That it ends says that the peer is gone, or that
// it has nothing more to say and all of it has arrived; so a death is noticed as with TCP.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "common/net/socket.h"
#include "common/sync/mutex.h"

namespace starling::transport {

// What one relayed link is made of.
struct RelayedLink {
  net::FileDescriptor local;      // the relay's end of the pair
  net::FileDescriptor control;    // the connection of the handshake
  net::FileDescriptor datagrams;  // a connected UDP socket
  std::uint64_t own_key = 0;      // in each datagram that this end sends
  std::uint64_t peer_key = 0;     // in each of the peer's; others are dropped
  std::size_t payload = 0;        // bytes of a datagram, at most
  std::size_t window = 0;         // bytes that the peer's socket holds at once
  std::size_t buffer = 0;         // bytes that are kept until they are acknowledged, or read
};

// Thread-safe.
class UdpRelay {
 public:
  // For tests: `loss` is the share of datagrams that are dropped instead of sent.
  explicit UdpRelay(double loss = 0);
  // Waits, for seconds at most, until what the links wrote has arrived or the peers are gone.
  ~UdpRelay();
  UdpRelay(const UdpRelay&) = delete;
  UdpRelay& operator=(const UdpRelay&) = delete;

  void Add(RelayedLink link);

  // Bytes before the payload of each datagram.
  static const std::size_t kHeaderBytes;

 private:
  class Relayed;

  void Run();

  const double loss_;
  net::EventFd wake_;
  std::atomic<bool> ending_{false};
  sync::Mutex mutex_;
  std::vector<std::unique_ptr<Relayed>> added_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace starling::transport
