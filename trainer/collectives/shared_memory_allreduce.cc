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
#include "trainer/collectives/shared_memory_allreduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "common/ranges/ranges.h"
#include "common/status/macros.h"
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

// Bytes of a chunk that are worked off at once: a few pieces stay in a core's own cache, and small
// arrays still have enough of them for ranks to work at the same time.
constexpr std::size_t kMostBytes = 64 * 1024;
constexpr std::size_t kFewestBytes = 8 * 1024;
constexpr std::size_t kWantedPieces = 8;

// A multiple of a cache line, lest two ranks write to one.
std::size_t PieceBytes(std::size_t bytes, std::size_t ranks) {
  constexpr std::size_t kLine = 64;
  const std::size_t room = kNoteAt / ranks / kLine * kLine;
  const std::size_t wanted = (bytes / ranks / kWantedPieces + kLine - 1) / kLine * kLine;
  return std::min(room, std::clamp(wanted, kFewestBytes, kMostBytes));
}

// One rank's part in one call.
class SharedSum {
 public:
  SharedSum(const Communicator& communicator, Arena& arena, std::span<std::byte> data,
            std::size_t element, Combine combine)
      : mesh_(communicator.mesh),
        deadline_(communicator.deadline),
        arena_(arena),
        size_(static_cast<std::size_t>(communicator.size())),
        rank_(static_cast<std::size_t>(communicator.rank())),
        data_(data),
        element_(element),
        combine_(combine),
        length_(data.size() / element),
        piece_(PieceBytes(data.size(), size_) / element),
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
    return ranges::PartOf(length_, rank, size_);
  }
  ranges::Range<std::size_t> LongestChunk() const { return {0, (length_ + size_ - 1) / size_}; }
  std::span<std::byte> Piece(std::size_t rank, std::size_t i) const {
    const ranges::Range<std::size_t> piece = ranges::PieceOf(Chunk(rank), i, piece_);
    return data_.subspan(piece.begin * element_, piece.size() * element_);
  }

  std::byte* SlotOf(std::size_t owner, std::size_t i) const {
    return arena_.Area(static_cast<int>(owner)).data() + (first_ + i) % kSlots * kSlotBytes;
  }
  // Where `owner`'s area has its part, or the sum if it is its own, of the i-th piece of `chunk`.
  std::span<std::byte> Slot(std::size_t owner, std::size_t chunk, std::size_t i) const {
    return {SlotOf(owner, i) + chunk * piece_ * element_, Piece(chunk, i).size()};
  }
  static void Copy(std::span<const std::byte> from, std::span<std::byte> to) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
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
    if (i == 0) NoteOf(rank_) = {length_};
    for (std::size_t other = 1; other < size_; ++other) {
      const std::size_t chunk = (rank_ + other) % size_;
      Copy(Piece(chunk, i), Slot(rank_, chunk, i));
    }
    Raise(kOffered, i);
    return absl::OkStatus();
  }

  absl::Status Add(std::size_t i) {
    RETURN_IF_ERROR(Await(kOffered, i, i == 0 ? Patience::kArrival : Patience::kWork));
    if (i == 0) RETURN_IF_ERROR(Compare());
    const std::span<std::byte> sum = Piece(rank_, i);
    for (std::size_t other = 1; other < size_; ++other) {
      combine_(Slot((rank_ + other) % size_, rank_, i).data(), sum.data(), sum.size() / element_);
    }
    Copy(sum, Slot(rank_, rank_, i));
    Raise(kAdded, i);
    return absl::OkStatus();
  }

  // Every rank sees what every other has noted, so all of them end.
  absl::Status Compare() const {
    for (std::size_t other = 0; other < size_; ++other) {
      const std::uint64_t theirs = NoteOf(other).length;
      if (theirs == length_) continue;
      const absl::Status differs = absl::InternalError(
          absl::StrCat("rank ", other, " sums up ", theirs, " elements where this rank has ",
                       length_, ": the ranks disagree about this step"));
      mesh_.Cancel(differs);
      return differs;
    }
    return absl::OkStatus();
  }

  absl::Status Take(std::size_t i) {
    RETURN_IF_ERROR(Await(kAdded, i));
    for (std::size_t other = 1; other < size_; ++other) {
      const std::size_t chunk = (rank_ + other) % size_;
      Copy(Slot(chunk, chunk, i), Piece(chunk, i));
    }
    Raise(kTaken, i);
    return absl::OkStatus();
  }

  // Each rank takes from each other one its part of the own chunk, and the sum of the other's.
  void Count() {
    for (std::size_t other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      const std::size_t mine = Chunk(rank_).size() * element_;
      const std::size_t theirs = Chunk(other).size() * element_;
      arena_.Count(static_cast<int>(other), theirs + mine, mine + theirs);
    }
  }

  transport::Mesh& mesh_;
  const net::Deadline deadline_;
  Arena& arena_;
  const std::size_t size_;
  const std::size_t rank_;
  const std::span<std::byte> data_;
  const std::size_t element_;  // bytes
  const Combine combine_;
  const std::size_t length_;   // elements
  const std::size_t piece_;    // likewise
  const std::uint64_t first_;  // number of the first piece, over all calls of the view
};

}  // namespace

absl::Status SharedMemoryAllreduce(const Communicator& communicator, std::span<std::byte> data,
                                   std::size_t element, Combine combine) {
  ASSIGN_OR_RETURN(Arena* const arena, communicator.mesh.ShareArena(communicator.deadline));
  if (arena == nullptr) {
    return absl::FailedPreconditionError(
        "the ranks of this view share no memory: choose another algorithm");
  }
  return SharedSum(communicator, *arena, data, element, combine).Run();
}

}  // namespace starling::collectives
