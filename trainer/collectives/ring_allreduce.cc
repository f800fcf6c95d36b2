// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "common/ranges/ranges.h"
#include "common/status/macros.h"
#include "trainer/collectives/allreduce.h"
#include "trainer/kernels/span_math.h"

namespace starling::collectives {
namespace {

// Elements that travel as one frame: received and added while they are in the second-level cache,
// and passed on while the rest of the chunk still comes.
constexpr std::size_t kPiece = 64 * 1024;

// Receives that are posted ahead of the one that is waited for.
constexpr std::size_t kWindow = 4;

// One rank's part in one call. Chunks go round to the right: in round k < n-1 of the first half
// this rank receives chunk rank-k-1, adds its own part and passes it on in the next round; n-1
// rounds later every chunk is complete at one rank, and goes round once more to be copied.
class Ring {
 public:
  Ring(const Communicator& communicator, std::span<float> data)
      : communicator_(communicator),
        mesh_(communicator.mesh),
        size_(static_cast<std::size_t>(communicator.size())),
        rank_(static_cast<std::size_t>(communicator.rank())),
        data_(data),
        slot_size_(std::min(kPiece, data.size() / size_ + 1)),
        slots_(communicator.workspace.Floats(kWindow * slot_size_)) {}

  absl::Status Run() {
    ListIncoming();
    SendChunk(rank_);
    for (std::size_t next = 0; next < incoming_.size(); ++next) {
      while (posted_ < incoming_.size() && posted_ < next + kWindow) PostReceive(posted_++);
      RETURN_IF_ERROR(mesh_.Wait(receives_[next % kWindow], communicator_.deadline));
      const Incoming& piece = incoming_[next];
      if (piece.add) kernels::Add(Slot(next, piece), piece.range.Of(data_));
      if (piece.pass_on) Send(piece.range);
    }
    for (const transport::Ticket send : sends_) {
      RETURN_IF_ERROR(mesh_.Wait(send, communicator_.deadline));
    }
    return absl::OkStatus();
  }

 private:
  struct Incoming {
    ranges::Range<std::size_t> range;
    bool add = false;
    bool pass_on = false;
  };

  void ListIncoming() {
    const std::size_t rounds = 2 * (size_ - 1);
    for (std::size_t round = 0; round < rounds; ++round) {
      // Of the left neighbour's: rank-k-1 while adding, rank-k while copying.
      const bool add = round < size_ - 1;
      const std::size_t back = add ? round + 1 : round - (size_ - 1);
      const ranges::Range<std::size_t> chunk =
          ranges::PartOf(data_.size(), (rank_ + size_ - back) % size_, size_);
      for (std::size_t i = 0; i < ranges::PiecesOf(chunk, kPiece); ++i) {
        incoming_.push_back({ranges::PieceOf(chunk, i, kPiece), add, round + 1 < rounds});
      }
    }
  }

  std::span<float> Slot(std::size_t index, const Incoming& piece) const {
    return slots_.subspan(index % kWindow * slot_size_, piece.range.size());
  }

  void PostReceive(std::size_t index) {
    const Incoming& piece = incoming_[index];
    const std::span<float> target = piece.add ? Slot(index, piece) : piece.range.Of(data_);
    const auto left = static_cast<int>((rank_ + size_ - 1) % size_);
    receives_[index % kWindow] =
        mesh_.PostReceive(left, communicator_.tag, std::as_writable_bytes(target));
  }

  void Send(const ranges::Range<std::size_t>& range) {
    const auto right = static_cast<int>((rank_ + 1) % size_);
    sends_.push_back(mesh_.PostSend(right, communicator_.tag, std::as_bytes(range.Of(data_))));
  }

  void SendChunk(std::size_t index) {
    const ranges::Range<std::size_t> chunk = ranges::PartOf(data_.size(), index, size_);
    for (std::size_t i = 0; i < ranges::PiecesOf(chunk, kPiece); ++i)
      Send(ranges::PieceOf(chunk, i, kPiece));
  }

  const Communicator& communicator_;
  transport::Mesh& mesh_;
  const std::size_t size_;
  const std::size_t rank_;
  const std::span<float> data_;
  const std::size_t slot_size_;
  const std::span<float> slots_;
  std::vector<Incoming> incoming_;
  std::size_t posted_ = 0;
  transport::Ticket receives_[kWindow] = {};
  std::vector<transport::Ticket> sends_;
};

}  // namespace

absl::Status RingAllreduce(const Communicator& communicator, std::span<float> data) {
  if (communicator.size() == 1 || data.empty()) return absl::OkStatus();
  return Ring(communicator, data).Run();
}

}  // namespace starling::collectives
