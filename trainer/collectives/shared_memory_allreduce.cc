// SPDX-License-Identifier: Apache-2.0
// The sum in memory that all ranks share: who owns a chunk adds it straight out of the others'
// areas.
//
// As in the ring, chunk c is a n-th of the array, and is summed in the order of ranks c, c+1, ...,
// c-1: the bits are the ring's. Here rank c owns it. All chunks are worked off piece by piece, the
// i-th piece of each chunk at the same time, in three stages that every rank goes through:
//
//   offer   copies its part of the others' pieces into its area
//   add     adds the others' parts of its own piece, and copies the sum into its area
//   take    copies the others' sums
//
// A rank offers piece i, adds i-1 and takes i-2 in turn, so that the others mostly have done what
// it waits for, and what is touched stays in the cores' caches. An area has kSlots slots, one for a
// piece; a slot is used again once everybody has taken from it.
#include <algorithm>
#include <cstdint>
#include <new>

#include "absl/strings/str_cat.h"
#include "common/ranges/ranges.h"
#include "common/status/macros.h"
#include "trainer/collectives/allreduce.h"
#include "trainer/kernels/span_math.h"
#include "trainer/transport/arena.h"

namespace starling::collectives {
namespace {

using transport::Arena;
using transport::Patience;

enum Stage : int { kOffered, kAdded, kTaken };
static_assert(Arena::kCounters >= 3);

constexpr std::size_t kSlots = 4;
constexpr std::size_t kSlotBytes = Arena::kAreaBytes / kSlots;

// At the end of a slot: what a rank believes that this call is about.
struct Note {
  std::uint64_t length = 0;
};
constexpr std::size_t kNoteAt = kSlotBytes - 64;

// Elements of a chunk that are worked off at once: a few pieces stay in a core's own cache, and
// small arrays still have enough of them for ranks to work at the same time.
constexpr std::size_t kMostElements = 16 * 1024;
constexpr std::size_t kFewestElements = 2 * 1024;
constexpr std::size_t kWantedPieces = 8;

std::size_t PieceElements(std::size_t length, std::size_t ranks) {
  const std::size_t room = kNoteAt / sizeof(float) / ranks;
  const std::size_t wanted = length / ranks / kWantedPieces;
  // A multiple of a cache line, lest two ranks write to one.
  const std::size_t rounded = (wanted + 15) / 16 * 16;
  return std::min(room / 16 * 16, std::clamp(rounded, kFewestElements, kMostElements));
}

// One rank's part in one call.
class SharedSum {
 public:
  SharedSum(const Communicator& communicator, Arena& arena, std::span<float> data)
      : mesh_(communicator.mesh),
        deadline_(communicator.deadline),
        arena_(arena),
        size_(static_cast<std::size_t>(communicator.size())),
        rank_(static_cast<std::size_t>(communicator.rank())),
        data_(data),
        piece_(PieceElements(data.size(), size_)),
        first_(arena.Own(kTaken)) {}

  absl::Status Run() {
    // At least one, so that ranks whose arrays are empty meet those whose are not.
    const std::size_t pieces = std::max<std::size_t>(1, ranges::PiecesOf(LongestChunk(), piece_));
    for (std::size_t i = 0; i < pieces + 2; ++i) {
      if (i < pieces) RETURN_IF_ERROR(Offer(i));
      if (i >= 1 && i <= pieces) RETURN_IF_ERROR(Add(i - 1));
      if (i >= 2) RETURN_IF_ERROR(Take(i - 2));
    }
    Count();
    return absl::OkStatus();
  }

 private:
  ranges::Range<std::size_t> Chunk(std::size_t rank) const {
    return ranges::PartOf(data_.size(), rank, size_);
  }
  ranges::Range<std::size_t> LongestChunk() const {
    return {0, (data_.size() + size_ - 1) / size_};
  }
  std::span<float> Piece(std::size_t rank, std::size_t i) const {
    return ranges::PieceOf(Chunk(rank), i, piece_).Of(data_);
  }

  std::byte* SlotOf(std::size_t owner, std::size_t i) const {
    return arena_.Area(static_cast<int>(owner)).data() + (first_ + i) % kSlots * kSlotBytes;
  }
  // Where `owner`'s area has its part, or the sum if it is its own, of the i-th piece of `chunk`.
  std::span<float> Slot(std::size_t owner, std::size_t chunk, std::size_t i) const {
    auto* const slot = reinterpret_cast<float*>(SlotOf(owner, i));
    return {slot + chunk * piece_, Piece(chunk, i).size()};
  }
  Note& NoteOf(std::size_t owner) const {
    return *std::launder(reinterpret_cast<Note*>(SlotOf(owner, 0) + kNoteAt));
  }

  absl::Status Await(Stage stage, std::size_t i, Patience patience = Patience::kWork) {
    return arena_.Await(stage, first_ + i + 1, patience, deadline_);
  }
  void Raise(Stage stage, std::size_t i) { arena_.Raise(stage, first_ + i + 1); }

  absl::Status Offer(std::size_t i) {
    if (first_ + i >= kSlots) {
      RETURN_IF_ERROR(arena_.Await(kTaken, first_ + i + 1 - kSlots, Patience::kWork, deadline_));
    }
    if (i == 0) NoteOf(rank_) = {data_.size()};
    for (std::size_t other = 1; other < size_; ++other) {
      const std::size_t chunk = (rank_ + other) % size_;
      kernels::Copy(Piece(chunk, i), Slot(rank_, chunk, i));
    }
    Raise(kOffered, i);
    return absl::OkStatus();
  }

  absl::Status Add(std::size_t i) {
    RETURN_IF_ERROR(Await(kOffered, i, i == 0 ? Patience::kArrival : Patience::kWork));
    if (i == 0) RETURN_IF_ERROR(Compare());
    const std::span<float> sum = Piece(rank_, i);
    for (std::size_t other = 1; other < size_; ++other) {
      kernels::Add(Slot((rank_ + other) % size_, rank_, i), sum);
    }
    kernels::Copy(sum, Slot(rank_, rank_, i));
    Raise(kAdded, i);
    return absl::OkStatus();
  }

  // Every rank sees what every other has noted, so all of them end.
  absl::Status Compare() const {
    for (std::size_t other = 0; other < size_; ++other) {
      const std::uint64_t theirs = NoteOf(other).length;
      if (theirs == data_.size()) continue;
      const absl::Status differs = absl::InternalError(
          absl::StrCat("rank ", other, " sums up ", theirs, " elements where this rank has ",
                       data_.size(), ": the ranks disagree about this step"));
      mesh_.Cancel(differs);
      return differs;
    }
    return absl::OkStatus();
  }

  absl::Status Take(std::size_t i) {
    RETURN_IF_ERROR(Await(kAdded, i));
    for (std::size_t other = 1; other < size_; ++other) {
      const std::size_t chunk = (rank_ + other) % size_;
      kernels::Copy(Slot(chunk, chunk, i), Piece(chunk, i));
    }
    Raise(kTaken, i);
    return absl::OkStatus();
  }

  // Each rank takes from each other one its part of the own chunk, and the sum of the other's.
  void Count() {
    for (std::size_t other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      const std::size_t mine = Chunk(rank_).size() * sizeof(float);
      const std::size_t theirs = Chunk(other).size() * sizeof(float);
      arena_.Count(static_cast<int>(other), theirs + mine, mine + theirs);
    }
  }

  transport::Mesh& mesh_;
  const net::Deadline deadline_;
  Arena& arena_;
  const std::size_t size_;
  const std::size_t rank_;
  const std::span<float> data_;
  const std::size_t piece_;
  const std::uint64_t first_;  // number of the first piece, over all calls of the view
};

}  // namespace

absl::Status SharedMemoryAllreduce(const Communicator& communicator, std::span<float> data) {
  if (communicator.size() == 1) return absl::OkStatus();
  ASSIGN_OR_RETURN(Arena* const arena, communicator.mesh.ShareArena(communicator.deadline));
  if (arena == nullptr) {
    return absl::FailedPreconditionError(
        "the ranks of this view share no memory: choose another algorithm");
  }
  return SharedSum(communicator, *arena, data).Run();
}

}  // namespace starling::collectives
