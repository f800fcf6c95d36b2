// SPDX-License-Identifier: Apache-2.0
// Memory that all ranks of a mesh share: an area and a few counters for each rank, which it alone
// writes and every rank reads. Beside it, the windows of the ranks that have one (window.h).
//
// Collectives work in it without frames: a rank writes into its area, raises a counter, and waits
// until the others have raised theirs; see collectives/shared_memory_allreduce.cc. A counter only
// grows, over all calls of a view, so that nobody who is a call ahead or behind can be mistaken.
// Who waits polls for a while and then sleeps in its mesh, which wakes up for a raised counter, a
// rank that died, a deadline and a cancellation alike: there are no locks that a dead rank could
// hold, and no other way to wait.
//
// An arena belongs to one view, as the mesh does that makes it (Mesh::ShareArena). A process that
// was paused in the middle of a copy writes into memory that nobody of a later view looks at. What
// stands in the other ranks' counters is only compared: whatever it is, no access leaves the arena.
//
// Windows outlive views, so a process that wakes late may find in one what a later step has left
// there. Therefore whoever gives up a call says so here (GiveUp) before it touches its window
// again, and whoever has read from windows asks, after its last read, whether anybody did
// (AnyGaveUp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/deadline.h"
#include "trainer/transport/sealed_memory.h"

namespace starling::transport {

// How long to poll for other ranks before sleeping.
enum class Patience {
  kArrival,  // they may compute still: as for any frame
  kWork,     // they have arrived, and work on the same: longer than what a sleep costs
};

// What an arena needs of the mesh that it belongs to.
class ArenaOwner {
 public:
  virtual ~ArenaOwner() = default;
  // Returns when `laggard` names no rank any more (-1), or with what ended the mesh. Drives all
  // transfers meanwhile.
  virtual absl::Status AwaitRanks(absl::FunctionRef<int()> laggard, Patience patience,
                                  net::Deadline deadline) = 0;
  // Ends the sleep of `rank`.
  virtual void RingBell(int rank) = 0;
  virtual void CountShared(int rank, std::size_t sent, std::size_t received) = 0;
};

// Confined to the thread that uses the mesh.
class Arena {
 public:
  static constexpr int kCounters = 3;
  static constexpr std::size_t kAreaBytes = 1 << 20;
  static constexpr int kMostRanks = 64;

  // One of zeros for `size` ranks, and the file to hand to them; or that file mapped.
  static absl::StatusOr<SealedMemory::Made> MakeMemory(int size);
  static absl::StatusOr<SealedMemory> MapMemory(const net::FileDescriptor& file, int size);

  Arena(SealedMemory memory, int rank, int size, ArenaOwner& owner)
      : memory_(std::move(memory)),
        rank_(rank),
        size_(size),
        owner_(owner),
        windows_(static_cast<std::size_t>(size)) {}

  // Of kAreaBytes, at a multiple of a page.
  std::span<std::byte> Area(int rank) const;

  // Empty where `rank` has none, or some rank cannot read it.
  std::span<const std::byte> WindowOf(int rank) const {
    return windows_[static_cast<std::size_t>(rank)];
  }
  // For the owner: this rank's own, if all others can read it, and those of the others.
  void UseWindows(std::span<const std::byte> own, std::vector<SealedMemory> others);

  // This rank's counter `which`, at first 0, is now `value`, which is no less than before: whatever
  // it wrote before that is seen by who has waited for it.
  void Raise(int which, std::uint64_t value);
  std::uint64_t Own(int which) const;

  // Returns when every other rank's counter `which` is at least `value`. Errors end the mesh.
  absl::Status Await(int which, std::uint64_t value, Patience patience, net::Deadline deadline);

  // This rank ends a call before its time, for ever: its window may change from now on.
  void GiveUp();
  // Whether a rank has given up. If not, what was read from windows until now was of this call.
  bool AnyGaveUp() const;

  // Enters into the mesh's ledger what `rank` and this one took from one another's areas.
  void Count(int rank, std::size_t sent, std::size_t received) {
    owner_.CountShared(rank, sent, received);
  }

  // For the owner: from now on, until Disarm, a Raise of any other rank rings this one's bell.
  void Arm();
  void Disarm();

 private:
  struct Counters;
  Counters& Of(int rank) const;

  const SealedMemory memory_;
  const int rank_;
  const int size_;
  ArenaOwner& owner_;
  std::vector<SealedMemory> mapped_;                 // the others' windows
  std::vector<std::span<const std::byte>> windows_;  // by rank
};

}  // namespace starling::transport
