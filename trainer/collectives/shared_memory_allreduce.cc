// SPDX-License-Identifier: Apache-2.0
// The sum in memory that all ranks share: who owns a chunk adds it straight out of the others'
// memory.
//
// As in the ring, chunk c is a n-th of the array, and is summed in the order of ranks c, c+1, ...,
// c-1: the bits are the ring's. Here rank c owns it. All chunks are worked off piece by piece, the
// i-th piece of each chunk at the same time, in three stages that every rank goes through:
//
//   offer   shows its part of the others' pieces
//   add     adds the others' parts of its own piece, and shows the sum
//   take    copies the others' sums
//
// A rank offers piece i, adds i-1 and takes i-2 in turn, so that the others mostly have done what
// it waits for, and what is touched stays in the cores' caches; or it takes later (LagOf).
//
// An array in the rank's window (transport/window.h) is shown where it is: nobody but the owner
// reads a part that is not summed yet, and the owner puts the sum in its own array. So all pieces
// are offered at once; but the rank returns only when all have taken from it. Any other array is
// shown by copies into the rank's area, which has kSlots slots, one for a piece; a slot is used
// again once everybody has taken from it. Each rank says in a note which of both its array is.
#include "trainer/collectives/shared_memory_allreduce.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>

#include "absl/strings/str_cat.h"
#include "common/ranges/ranges.h"
#include "common/status/macros.h"
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
constexpr std::uint64_t kInArea = ~std::uint64_t{0};
struct Note {
  std::uint64_t length = 0;       // elements
  std::uint64_t place = kInArea;  // where in its window the array begins: bytes
};
constexpr std::size_t kNoteAt = kSlotBytes - 64;

// Bytes of a chunk that are worked off at once: a few pieces stay in a core's own cache, and small
// arrays still have enough of them for ranks to work at the same time.
constexpr std::size_t kMostBytes = 64 * 1024;
constexpr std::size_t kFewestBytes = 8 * 1024;
constexpr std::size_t kWantedPieces = 8;

// Below this size two copies cost less than to wait until all have taken.
constexpr std::size_t kFewestBytesInPlace = 16 * 1024;

// The ranks' arrays above this size displace one another in the last-level cache. Sums are taken
// past it then, which spares memory one read of what is only overwritten: 12 GB/s rather than 8 at
// 16 MiB, 9 rather than 7 at 128.
constexpr std::size_t kMostInCache = 12 << 20;

// How many pieces after it was offered a piece is taken, where all arrays are in windows. A sum
// comes faster from the last-level cache than out of the cache of the core that has just written
// it, so middling arrays wait until it has moved there; smaller ones stay in the cores' caches
// whatever one does, and the largest would be fetched from memory again. Measured on AMD EPYC with
// 1 MiB of cache a core: 17 GB/s rather than 11 at 1 MiB, 30 rather than 12 at 2 and 4 MiB.
constexpr std::size_t kLag = 2;
std::size_t LagOf(std::size_t bytes) {
  constexpr std::size_t kLate = 64;
  return bytes > (512 << 10) && bytes <= kMostInCache ? kLate : kLag;
}

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
        // At least one, so that ranks whose arrays are empty meet those whose are not.
        pieces_(std::max<std::size_t>(1, ranges::PiecesOf(LongestChunk(), piece_))),
        place_(PlaceOf(arena.WindowOf(communicator.rank()), data)),
        first_(arena.Own(kTaken)) {}

  absl::Status Run() {
    const absl::Status worked = Work();
    if (worked.ok()) {
      Count();
    } else {
      arena_.GiveUp();
    }
    return worked;
  }

 private:
  static std::uint64_t PlaceOf(std::span<const std::byte> window, std::span<const std::byte> data) {
    if (window.empty() || data.size() < kFewestBytesInPlace) return kInArea;
    const std::less_equal<const std::byte*> before;  // of addresses in different objects, too
    const bool within = before(window.data(), data.data()) &&
                        before(data.data() + data.size(), window.data() + window.size());
    return within ? static_cast<std::uint64_t>(data.data() - window.data()) : kInArea;
  }
  bool InPlace() const { return place_ != kInArea; }

  absl::Status Work() {
    for (std::size_t i = 0; i < pieces_ + lag_; ++i) {
      if (i < pieces_) RETURN_IF_ERROR(Offer(i));
      if (i >= 1 && i <= pieces_) RETURN_IF_ERROR(Add(i - 1));
      if (i >= lag_) RETURN_IF_ERROR(Take(i - lag_));
    }
    if (InPlace()) RETURN_IF_ERROR(Await(kTaken, pieces_ - 1));
    if (!arena_.AnyGaveUp()) return absl::OkStatus();
    // What was read may not have been of this call any more. Who gave up has left the mesh: this
    // waits for more than anybody does, until the mesh has found out and says who is lost.
    return arena_.Await(kTaken, ~std::uint64_t{0}, Patience::kWork, deadline_);
  }

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
  // Of this rank, for its part, or the sum if it is its own, of the i-th piece of `chunk`.
  std::span<std::byte> Slot(std::size_t chunk, std::size_t i) const {
    return {SlotOf(rank_, i) + chunk * piece_ * element_, Piece(chunk, i).size()};
  }
  // Where `other` shows that.
  const std::byte* Shown(std::size_t other, std::size_t chunk, std::size_t i) const {
    if (arrays_[other] == nullptr) return SlotOf(other, i) + chunk * piece_ * element_;
    return arrays_[other] + (Piece(chunk, i).data() - data_.data());
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
    if (InPlace() && i > 0) return absl::OkStatus();
    if (first_ + i >= kSlots) {
      RETURN_IF_ERROR(arena_.Await(kTaken, first_ + i + 1 - kSlots, Patience::kWork, deadline_));
    }
    if (i == 0) NoteOf(rank_) = {length_, place_};
    for (std::size_t other = 1; other < size_ && !InPlace(); ++other) {
      const std::size_t chunk = (rank_ + other) % size_;
      Copy(Piece(chunk, i), Slot(chunk, i));
    }
    Raise(kOffered, InPlace() ? pieces_ - 1 : i);
    return absl::OkStatus();
  }

  absl::Status Add(std::size_t i) {
    RETURN_IF_ERROR(Await(kOffered, i, i == 0 ? Patience::kArrival : Patience::kWork));
    if (i == 0) RETURN_IF_ERROR(ReadNotes());
    const std::span<std::byte> sum = Piece(rank_, i);
    for (std::size_t other = 1; other < size_; ++other) {
      combine_(Shown((rank_ + other) % size_, rank_, i), sum.data(), sum.size() / element_);
    }
    if (!InPlace()) Copy(sum, Slot(rank_, i));
    Raise(kAdded, i);
    return absl::OkStatus();
  }

  // Every rank sees what every other has noted, so where they differ all of them end.
  absl::Status ReadNotes() {
    bool all_in_place = InPlace();
    for (std::size_t other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      const Note note = NoteOf(other);  // read once: the other may go on writing
      absl::Status differs;
      if (note.length != length_) {
        differs = absl::InternalError(absl::StrCat("rank ", other, " sums up ", note.length,
                                                   " elements where this rank has ", length_,
                                                   ": the ranks disagree about this step"));
      } else if (note.place != kInArea) {
        const std::span<const std::byte> window = arena_.WindowOf(static_cast<int>(other));
        if (note.place <= window.size() && data_.size() <= window.size() - note.place) {
          arrays_[other] = window.data() + note.place;
          continue;
        }
        differs = absl::InternalError(
            absl::StrCat("rank ", other, " shows an array that does not lie in its window"));
      }
      all_in_place = false;
      if (differs.ok()) continue;
      mesh_.Cancel(differs);
      return differs;
    }
    // A rank whose slots are full until others have taken does not offer what they wait for.
    if (all_in_place) lag_ = LagOf(data_.size());
    return absl::OkStatus();
  }

  absl::Status Take(std::size_t i) {
    RETURN_IF_ERROR(Await(kAdded, i));
    for (std::size_t other = 1; other < size_; ++other) {
      const std::size_t chunk = (rank_ + other) % size_;
      const std::span<std::byte> piece = Piece(chunk, i);
      const std::span<const std::byte> sum(Shown(chunk, chunk, i), piece.size());
      data_.size() > kMostInCache ? kernels::CopyPastCaches(sum, piece) : Copy(sum, piece);
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
  const std::size_t length_;  // elements
  const std::size_t piece_;   // likewise
  const std::size_t pieces_;
  const std::uint64_t place_;  // as in the note
  const std::uint64_t first_;  // number of the first piece, over all calls of the view
  std::size_t lag_ = kLag;     // from the second piece on as LagOf says
  // The arrays of other ranks, where they are in windows; by rank.
  std::array<const std::byte*, Arena::kMostRanks> arrays_ = {};
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
