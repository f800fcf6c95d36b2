// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/execute.h"

#include <algorithm>
#include <vector>

#include "common/status/macros.h"

namespace starling::collectives {
namespace {

constexpr std::size_t kPieceBytes = 256 * 1024;

// Receives that are posted ahead of the one that is waited for.
constexpr std::size_t kWindow = 4;

// Frames without a payload keep the order of rounds too: they are all that a barrier has.
bool Overlap(const Elements& a, const Elements& b) {
  return a.size() == 0 || b.size() == 0 || std::max(a.begin, b.begin) < std::min(a.end, b.end);
}

// Of a rank's pieces in the order of the schedule: how many of `earlier` have to be done before
// one of `range` may be touched, i.e. all up to the last that overlaps it.
template <typename Piece>
std::size_t UpToLastOverlap(const std::vector<Piece>& earlier, std::size_t count,
                            const Elements& range) {
  while (count > 0 && !Overlap(earlier[count - 1].range, range)) --count;
  return count;
}

// One rank's part in one call.
class Execution {
 public:
  Execution(const Communicator& communicator, std::span<const std::byte> from,
            std::span<std::byte> to, std::size_t element, Combine combine)
      : mesh_(communicator.mesh),
        tag_(communicator.tag),
        deadline_(communicator.deadline),
        from_(from),
        to_(to),
        element_(element),
        combine_(combine),
        piece_(kPieceBytes / element),
        slots_(communicator.workspace.Bytes(combine == nullptr ? 0 : kWindow * kPieceBytes)) {}

  absl::Status Run(const Schedule& schedule) {
    List(schedule);
    PostSends(0);
    for (std::size_t next = 0; next < incoming_.size(); ++next) {
      RETURN_IF_ERROR(PostReceives(next));
      const Incoming& piece = incoming_[next];
      RETURN_IF_ERROR(mesh_.Wait(receives_[next % kWindow], deadline_));
      if (piece.combine) {
        RETURN_IF_ERROR(FinishSends(piece.sends_before));
        combine_(Slot(next, piece).data(), Of(to_, piece.range).data(), piece.range.size());
      }
      PostSends(next + 1);
    }
    return FinishSends(outgoing_.size());
  }

 private:
  struct Outgoing {
    int peer = 0;
    Elements range;
    std::size_t receives_before = 0;  // that this is made of, or follows
    transport::Ticket ticket = 0;
  };
  struct Incoming {
    int peer = 0;
    Elements range;
    bool combine = false;
    std::size_t sends_before = 0;  // of what was there
  };

  void List(const Schedule& schedule) {
    const bool in_place = from_.data() == to_.data();
    for (const Round& round : schedule) {
      const std::size_t received = incoming_.size();
      for (const Transfer& send : round.sends) {
        for (const Elements& part : PiecesOf(send.range)) {
          const std::size_t before = in_place ? UpToLastOverlap(incoming_, received, part) : 0;
          outgoing_.push_back({send.peer, part, before});
        }
      }
      for (const Receipt& receipt : round.receipts) {
        for (const Elements& part : PiecesOf(receipt.range)) {
          const std::size_t before =
              in_place ? UpToLastOverlap(outgoing_, outgoing_.size(), part) : 0;
          incoming_.push_back({receipt.peer, part, receipt.combine, before});
        }
      }
    }
  }

  // At least one, so that an empty range is a frame too: it says that its sender has come so far.
  std::vector<Elements> PiecesOf(const Elements& range) const {
    std::vector<Elements> pieces;
    for (std::size_t i = 0; i < std::max<std::size_t>(1, ranges::PiecesOf(range, piece_)); ++i) {
      pieces.push_back(ranges::PieceOf(range, i, piece_));
    }
    return pieces;
  }

  template <typename Byte>
  std::span<Byte> Of(std::span<Byte> data, const Elements& range) const {
    return data.subspan(range.begin * element_, range.size() * element_);
  }
  std::span<std::byte> Slot(std::size_t index, const Incoming& piece) const {
    return slots_.subspan(index % kWindow * kPieceBytes, piece.range.size() * element_);
  }

  // All that may leave once `received` pieces are there.
  void PostSends(std::size_t received) {
    for (; sent_ < outgoing_.size() && outgoing_[sent_].receives_before <= received; ++sent_) {
      Outgoing& piece = outgoing_[sent_];
      piece.ticket = mesh_.PostSend(piece.peer, tag_, Of(from_, piece.range));
    }
  }

  absl::Status FinishSends(std::size_t count) {
    for (; finished_ < count; ++finished_) {
      RETURN_IF_ERROR(mesh_.Wait(outgoing_[finished_].ticket, deadline_));
    }
    return absl::OkStatus();
  }

  // The one that is `next`, and those after it that have room. What comes straight into place must
  // not overwrite what is still to be sent; of the next one, all such sends have been posted, for
  // they are of its round or earlier.
  absl::Status PostReceives(std::size_t next) {
    for (; posted_ < incoming_.size() && posted_ < next + kWindow; ++posted_) {
      const Incoming& piece = incoming_[posted_];
      if (!piece.combine && piece.sends_before > sent_) break;
      if (!piece.combine) RETURN_IF_ERROR(FinishSends(piece.sends_before));
      const auto target = piece.combine ? Slot(posted_, piece) : Of(to_, piece.range);
      receives_[posted_ % kWindow] = mesh_.PostReceive(piece.peer, tag_, target);
    }
    return absl::OkStatus();
  }

  transport::Mesh& mesh_;
  const transport::Tag tag_;
  const net::Deadline deadline_;
  const std::span<const std::byte> from_;
  const std::span<std::byte> to_;
  const std::size_t element_;
  const Combine combine_;
  const std::size_t piece_;
  const std::span<std::byte> slots_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::size_t sent_ = 0;      // of outgoing_: posted
  std::size_t finished_ = 0;  // and waited for
  std::size_t posted_ = 0;    // of incoming_
  transport::Ticket receives_[kWindow] = {};
};

}  // namespace

absl::Status Execute(const Communicator& communicator, const Schedule& schedule,
                     std::span<const std::byte> from, std::span<std::byte> to, std::size_t element,
                     Combine combine) {
  return Execution(communicator, from, to, element, combine).Run(schedule);
}

}  // namespace starling::collectives
