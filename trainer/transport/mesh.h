// SPDX-License-Identifier: Apache-2.0
// The members of one view, connected pairwise: tagged byte spans travel between ranks.
//
// A Mesh belongs to one view and is never reused: whatever goes wrong in it (a broken link, a
// deadline, Cancel) ends every call of it, on this rank at once and on the others as soon as they
// see the closed connections. The next view gets a new one. That is all of the failure handling
// that collectives need.
//
// No thread of its own works here: the thread that calls drives all links, so that a step costs no
// wake-up more than the network demands. PostSend and PostReceive register transfers, Wait moves
// all of them until one is done; sending and receiving at once therefore cannot deadlock.
//
// To add a kind (RDMA): implement a Stream and its Connector (stream.h, dialing.h), or Mesh and
// Transport, and add it to the list in transport_contract_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/deadline.h"
#include "trainer/transport/arena.h"
#include "trainer/transport/ledger.h"
#include "trainer/transport/shaping.h"

namespace starling::transport {

// What a frame belongs to. Frames of one tag between two ranks arrive in the order of their sends.
struct Tag {
  std::uint64_t step = 0;
  std::uint32_t channel = 0;  // bucket, control word and so on: see trainer/collectives/channels.h

  friend bool operator==(const Tag&, const Tag&) = default;
};

// Names a posted transfer until it was waited for.
using Ticket = std::uint64_t;

// Confined to one thread at a time, except Cancel and Wake. After a failure every call returns the
// first failure's status; buffers of posted transfers are no longer touched once the call that
// failed has returned. Ranks out of range, or one's own, are broken invariants.
class Mesh {
 public:
  // Ends connections: in an orderly manner if no transfer is pending, so that a slower peer still
  // receives all that was sent; otherwise without a word, as if this process had died.
  virtual ~Mesh() = default;

  virtual std::uint64_t view() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& member(int rank) const = 0;

  // Starts to send `data`, which must stay valid and unchanged until Wait(ticket) or a failure.
  // What the link takes at once is written before this returns.
  virtual Ticket PostSend(int peer, Tag tag, std::span<const std::byte> data) = 0;

  // Starts to receive exactly data.size() bytes. A frame of another size is INTERNAL: the ranks
  // disagree about what they do.
  virtual Ticket PostReceive(int peer, Tag tag, std::span<std::byte> data) = 0;

  // Returns when the transfer is done; drives all others meanwhile. Each ticket is waited for once.
  virtual absl::Status Wait(Ticket ticket, net::Deadline deadline) = 0;

  // Returns when one of `tickets` is done, which it names (the first of them, if several are), or
  // nothing once `deadline` has passed or Wake was called: that does not end the mesh. Drives all
  // transfers meanwhile. For those who serve whoever speaks first; without tickets it waits for
  // Wake or Cancel.
  virtual absl::StatusOr<std::optional<Ticket>> WaitAny(std::span<const Ticket> tickets,
                                                        net::Deadline deadline) = 0;

  // Waits for all posted transfers.
  virtual absl::Status WaitAll(net::Deadline deadline) = 0;

  // A whole message whose size only the sender knows, of at most `limit` bytes.
  virtual absl::StatusOr<std::string> ReceiveMessage(int peer, Tag tag, std::size_t limit,
                                                     net::Deadline deadline) = 0;

  // Memory that all ranks share, and with it faster collectives; the same arena in every call. Null
  // at every rank where some of them cannot share any: they are on several machines or in several
  // pods, a network is emulated, or the system's limits leave no room. The first call of a view is
  // a collective: all ranks make it, at the same place among their transfers. It shows the ranks
  // one another's windows, too.
  virtual absl::StatusOr<Arena*> ShareArena(net::Deadline /*deadline*/) { return nullptr; }

  // Whether no other thread of this process computes while the caller waits for this mesh; false at
  // first. The caller may then poll for longer before it sleeps (spin.h). Who says true says false
  // before others compute again, or the thread that drives the mesh takes a core from them. Threads
  // that read data or write checkpoints may run meanwhile: who polls notices that they want the
  // core.
  virtual void SetOthersIdle(bool idle) = 0;
  virtual bool others_idle() const = 0;

  // Thread-safe. The WaitAny that runs, or else the next, returns nothing if it has nothing to
  // name.
  virtual void Wake() = 0;

  // Thread-safe. Ends the running and every later call with `reason`, and the connections.
  virtual void Cancel(const absl::Status& reason) = 0;

  // OK, or what ended this mesh. Thread-safe.
  virtual absl::Status status() const = 0;

  // What this mesh moved to and from `peer`. Thread-safe.
  virtual Traffic traffic(int peer) const = 0;

  // Whether what goes to and from `peer` stays in memory, for those who tell. Thread-safe.
  virtual bool SharesMemory(int peer) const = 0;
  // Whether what goes to and from `peer` is encrypted on its way. Thread-safe.
  virtual bool Encrypts(int peer) const = 0;
  // Whether it travels in datagrams. Thread-safe.
  virtual bool SendsDatagrams(int peer) const = 0;

  // The network that is emulated between the ranks, if one is.
  virtual const Shaping& shaping() const = 0;

  // PostSend or PostReceive, and Wait.
  absl::Status Send(int peer, Tag tag, std::span<const std::byte> data, net::Deadline deadline) {
    return Wait(PostSend(peer, tag, data), deadline);
  }
  absl::Status Receive(int peer, Tag tag, std::span<std::byte> data, net::Deadline deadline) {
    return Wait(PostReceive(peer, tag, data), deadline);
  }
};

// The ranks that a failed Mesh call or Transport::Open could not reach, as far as this rank knows;
// empty for Cancel and for OK. It travels inside the status, through all layers above.
std::vector<int> UnreachableRanks(const absl::Status& status);
absl::Status WithUnreachableRanks(absl::Status status, const std::vector<int>& ranks);

}  // namespace starling::transport
