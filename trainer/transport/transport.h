// SPDX-License-Identifier: Apache-2.0
// Where meshes come from: a Transport listens for its member and connects the members of a view.
//
// There is one connection per (view, pair of members); the later rank dials the earlier one. It
// opens with a handshake in which both sides prove that they know the job's secret. A Hello of a
// view below the fence is refused and told the fence; one of a view that this member has not opened
// yet is parked until it does. Whoever cannot prove the secret gets no answer, cannot make us
// allocate, and is dropped after a short time; there is room for a bounded number of them.
//
// Kinds: tcp (OpenTcpTransport in tcp_transport.h), udp (udp_transport.h), shm (OpenShmTransport in
// shm_transport.h), mixed of shm and one of the others (OpenMixedTransport in mixed_transport.h)
// and inproc (InprocNetwork in inproc_transport.h). All pass transport_contract_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/deadline.h"
#include "trainer/transport/cancellation.h"
#include "trainer/transport/ledger.h"
#include "trainer/transport/mesh.h"
#include "trainer/transport/shaping.h"
#include "trainer/transport/spin.h"
#include "trainer/transport/window.h"

namespace starling::transport {

struct Peer {
  std::string member;   // id: pod UID and start number, at most kMaxMemberIdBytes
  std::string address;  // as Transport::address() of that member shows it
  std::string pod{};    // its name, by which it has a place on an emulated host (shaping.h)
};
inline constexpr std::size_t kMaxMemberIdBytes = 120;

struct Options {
  std::string member;  // this member's id
  std::string job;     // the job's UID: two jobs with one secret still refuse each other
  std::string secret;  // the job's data-plane key
  // Links that leave this machine are encrypted (TLS 1.3). Members that differ in it refuse each
  // other.
  bool encrypted = false;
  // Where members can (mixed_transport.h); without it all links leave this machine, or could.
  bool share_memory = true;
  // Links that leave this machine are UDP's (udp_transport.h), not TCP's.
  bool datagrams = false;

  int max_half_open = 64;                                 // connections that proved nothing yet
  absl::Duration handshake_timeout = absl::Seconds(2);    // for them to do so
  int max_parked = 1024;                                  // authenticated ones of later views
  absl::Duration dial_timeout = absl::Milliseconds(300);  // for a peer that refuses connections

  Spin spin;                               // of a waiting thread, before it sleeps
  std::size_t max_early_bytes = 64 << 20;  // frames of a mesh that came before their receive
  Shaping shaping;
  // What ranks on this machine may read; null: nothing.
  std::shared_ptr<const Window> window;
};

// Thread-safe.
class Transport {
 public:
  // Ends its listener and drops parked connections. Meshes outlive it.
  virtual ~Transport() = default;

  // Where peers reach this member: what the coordinator puts into views.
  virtual std::string address() const = 0;

  // Connects `members`, the whole view in rank order, of which this is `rank`. Installs `view`:
  // raises the fence to it. Returns when all links stand, i.e. when every peer has called it too.
  // FAILED_PRECONDITION below the fence, or when a peer's fence is higher; UNAVAILABLE,
  // DEADLINE_EXCEEDED and the reason of `cancellation` (may be null) as they say;
  // UnreachableRanks(status) tells which peers are missing.
  virtual absl::StatusOr<std::unique_ptr<Mesh>> Open(std::uint64_t view,
                                                     const std::vector<Peer>& members, int rank,
                                                     net::Deadline deadline,
                                                     Cancellation* cancellation) = 0;

  // From now on Hellos of views below `view` are refused; parked ones are too. Never goes back.
  virtual void Fence(std::uint64_t view) = 0;
  virtual std::uint64_t fence() const = 0;

  virtual const Ledger& ledger() const = 0;
};

}  // namespace starling::transport
