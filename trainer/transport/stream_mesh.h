// SPDX-License-Identifier: Apache-2.0
// A Mesh over connected streams, whatever they are.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/net/socket.h"
#include "common/sync/mutex.h"
#include "trainer/transport/arena.h"
#include "trainer/transport/ledger.h"
#include "trainer/transport/link.h"
#include "trainer/transport/mesh.h"
#include "trainer/transport/stream.h"
#include "trainer/transport/transport.h"

namespace starling::transport {

// As errors call it.
std::string PeerName(int rank, const Peer& peer);

// Whether nothing is emulated between the two, for they share a card.
bool OnOneHost(const Peer& a, const Peer& b, const Shaping& shaping);

// Confined to one thread at a time, except Wake, Cancel, status and traffic.
class StreamMesh final : public Mesh, private LinkOwner, private ArenaOwner {
 public:
  // `streams` has one for each member, null for `rank` itself. `card` is that of this member's
  // emulated host, null if it shares none.
  StreamMesh(std::uint64_t view, std::vector<Peer> members, int rank,
             std::vector<std::unique_ptr<Stream>> streams, const Options& options, Ledger& ledger,
             std::shared_ptr<HostCard> card = nullptr);
  ~StreamMesh() override;

  std::uint64_t view() const override { return view_; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  const std::string& member(int rank) const override { return members_[rank].member; }
  Ticket PostSend(int peer, Tag tag, std::span<const std::byte> data) override;
  Ticket PostReceive(int peer, Tag tag, std::span<std::byte> data) override;
  absl::Status Wait(Ticket ticket, net::Deadline deadline) override;
  absl::StatusOr<std::optional<Ticket>> WaitAny(std::span<const Ticket> tickets,
                                                net::Deadline deadline) override;
  absl::Status WaitAll(net::Deadline deadline) override;
  absl::StatusOr<std::string> ReceiveMessage(int peer, Tag tag, std::size_t limit,
                                             net::Deadline deadline) override;
  absl::StatusOr<Arena*> ShareArena(net::Deadline deadline) override;
  void SetOthersIdle(bool idle) override { spin_.SetOthersIdle(idle); }
  bool others_idle() const override { return spin_.others_idle(); }
  void Wake() override;
  void Cancel(const absl::Status& reason) override;
  absl::Status status() const override;
  Traffic traffic(int peer) const override;
  bool SharesMemory(int peer) const override { return near_[static_cast<std::size_t>(peer)]; }
  bool Encrypts(int peer) const override { return encrypted_[static_cast<std::size_t>(peer)]; }
  bool SendsDatagrams(int peer) const override {
    return datagrams_[static_cast<std::size_t>(peer)];
  }
  const Shaping& shaping() const override { return shaping_; }

 private:
  struct Transfer {
    int peer = 0;
    bool receive = false;
    std::size_t bytes = 0;
    bool done = false;
    bool waited = false;
    std::int64_t ready = 0;  // monotonic nanoseconds
  };

  // Marks that a thread works on the links: Cancel then leaves the closing to it.
  class Drive {
   public:
    explicit Drive(StreamMesh& mesh);
    ~Drive();
    Drive(const Drive&) = delete;
    Drive& operator=(const Drive&) = delete;

   private:
    StreamMesh& mesh_;
  };

  void OnSent(Ticket ticket) override { At(ticket).done = true; }
  void OnReceived(Ticket ticket, std::int64_t ready) override;

  // Of the arena: see stream_mesh_arena.cc.
  absl::Status AwaitRanks(absl::FunctionRef<int()> laggard, Patience patience,
                          net::Deadline deadline) override;
  void RingBell(int rank) override;
  void CountShared(int rank, std::size_t sent, std::size_t received) override;
  absl::Status SleepUntilRung(absl::FunctionRef<int()> laggard, net::Deadline deadline);
  // Tells each rank its word of `mine`, and returns what each tells this one; all ranks call it.
  absl::StatusOr<std::vector<std::uint64_t>> Tell(std::vector<std::uint64_t> mine,
                                                  std::uint64_t round, net::Deadline deadline);
  // Whether every rank's `mine` is true; all ranks call it.
  absl::StatusOr<bool> AllAgree(bool mine, std::uint64_t round, net::Deadline deadline);
  absl::StatusOr<bool> MakeArena(net::Deadline deadline);
  // Hand a file over to a peer that shares memory, and take the one that it has handed over.
  bool PassFile(int peer, const net::FileDescriptor& file);
  net::FileDescriptor TakeFile(int peer);
  bool TakeArena();
  void UseArena(SealedMemory memory);
  absl::Status ShareWindows(net::Deadline deadline);
  SealedMemory TakeWindow(int peer, std::uint64_t bytes);

  Ticket NewTicket(int peer, bool receive, std::size_t bytes);
  Transfer& At(Ticket ticket);
  const Transfer& At(Ticket ticket) const;
  Link& LinkTo(int peer);
  bool IsDone(Ticket ticket) const;
  void CheckUnwaited(Ticket ticket) const;
  // Of those, the one whose shaped arrival is next; any, if none has arrived.
  std::optional<Ticket> Next(std::span<const Ticket> tickets) const;
  void Forget(Ticket ticket);
  absl::Status DriveUntilDone(Ticket ticket, net::Deadline deadline);
  // After a Progress that moved nothing: whether to try again rather than to sleep. `idle_since` is
  // 0 at first, and again after one that moved something.
  bool Spin(std::int64_t& idle_since, bool at_sum = false);
  // Moves what can be moved without waiting; whether anything did.
  absl::StatusOr<bool> Progress();
  absl::Status Sleep(std::optional<Ticket> ticket, net::Deadline deadline);
  absl::Status OnPolled();
  absl::Status DeadlineError(Ticket ticket) const;
  // Whom this rank cannot reach, now that the link to `peer` is of no use.
  std::vector<int> LostRanks(int peer);
  // Records `status` if it is the first, ends all connections; returns what ended the mesh.
  absl::Status Fail(int peer, absl::Status status);
  void CloseLinks(std::uint64_t farewell);

  const std::uint64_t view_;
  const std::vector<Peer> members_;
  const int rank_;
  const std::vector<bool> near_;       // by rank: shares memory with this one
  const std::vector<bool> encrypted_;  // by rank
  const std::vector<bool> datagrams_;  // by rank
  const Shaping shaping_;
  SpinWait spin_;
  const std::shared_ptr<const Window> window_;  // null: none
  std::vector<std::unique_ptr<TrafficCounter>> counters_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank; null for our own
  std::deque<Transfer> transfers_;            // [first_ticket_, first_ticket_ + size)
  Ticket first_ticket_ = 1;
  std::map<Ticket, Transfer> kept_;  // below first_ticket_, and open
  std::optional<std::unique_ptr<Arena>>
      arena_;  // null where none can be; none before the first call
  std::vector<pollfd> polls_;
  std::vector<int> polled_;  // the rank of each of polls_ but the last

  net::EventFd wake_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> woken_{false};  // until a WaitAny has returned for it
  mutable sync::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool driving_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ = false;  // by the driving thread, or under mutex_ while none drives
};

}  // namespace starling::transport
