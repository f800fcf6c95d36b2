// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/execute.h"

#include <algorithm>
#include <vector>

#include "common/status/macros.h"

namespace starling::collectives {
namespace {

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

std::vector<Elements> PiecesOf(const Elements& range, std::size_t piece) {
  std::vector<Elements> pieces;
  for (std::size_t i = 0; i < PieceCount(range, piece); ++i) {
    pieces.push_back(ranges::PieceOf(range, i, piece));
  }
  return pieces;
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
        slots_(communicator.workspace.Bytes(combine == nullptr ? 0 : kWindow * kPieceBytes)) {}

  absl::Status Run(const Schedule& schedule) {
    pieces_ = CutIntoPieces(schedule, kPieceBytes / element_, from_.data() == to_.data());
    tickets_.resize(pieces_.outgoing.size());
    PostSends(0);
    for (std::size_t next = 0; next < pieces_.incoming.size(); ++next) {
      RETURN_IF_ERROR(PostReceives(next));
      const Pieces::Incoming& piece = pieces_.incoming[next];
      RETURN_IF_ERROR(mesh_.Wait(receives_[next % kWindow], deadline_));
      if (piece.combine) {
        RETURN_IF_ERROR(FinishSends(piece.sends_before));
        combine_(Slot(next, piece).data(), Of(to_, piece.range).data(), piece.range.size());
      }
      PostSends(next + 1);
    }
    return FinishSends(pieces_.outgoing.size());
  }

 private:
  template <typename Byte>
  std::span<Byte> Of(std::span<Byte> data, const Elements& range) const {
    return data.subspan(range.begin * element_, range.size() * element_);
  }
  std::span<std::byte> Slot(std::size_t index, const Pieces::Incoming& piece) const {
    return slots_.subspan(index % kWindow * kPieceBytes, piece.range.size() * element_);
  }

  // All that may leave once `received` pieces are there.
  void PostSends(std::size_t received) {
    const std::vector<Pieces::Outgoing>& sends = pieces_.outgoing;
    for (; sent_ < sends.size() && sends[sent_].receives_before <= received; ++sent_) {
      tickets_[sent_] = mesh_.PostSend(sends[sent_].peer, tag_, Of(from_, sends[sent_].range));
    }
  }

  absl::Status FinishSends(std::size_t count) {
    for (; finished_ < count; ++finished_) {
      RETURN_IF_ERROR(mesh_.Wait(tickets_[finished_], deadline_));
    }
    return absl::OkStatus();
  }

  // The one that is `next`, and those after it that have room. What comes straight into place must
  // not overwrite what is still to be sent; of the next one, all such sends have been posted, for
  // they are of its round or earlier.
  absl::Status PostReceives(std::size_t next) {
    for (; posted_ < pieces_.incoming.size() && posted_ < next + kWindow; ++posted_) {
      const Pieces::Incoming& piece = pieces_.incoming[posted_];
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
  const std::span<std::byte> slots_;
  Pieces pieces_;
  std::vector<transport::Ticket> tickets_;  // of pieces_.outgoing, once they are posted
  std::size_t sent_ = 0;                    // of these: posted
  std::size_t finished_ = 0;                // and waited for
  std::size_t posted_ = 0;                  // of pieces_.incoming
  transport::Ticket receives_[kWindow] = {};
};

}  // namespace

Pieces CutIntoPieces(const Schedule& schedule, std::size_t piece, bool in_place) {
  Pieces pieces;
  for (const Round& round : schedule) {
    const std::size_t received = pieces.incoming.size();
    for (const Transfer& send : round.sends) {
      for (const Elements& part : PiecesOf(send.range, piece)) {
        const std::size_t before = in_place ? UpToLastOverlap(pieces.incoming, received, part) : 0;
        pieces.outgoing.push_back({send.peer, part, before});
      }
    }
    for (const Receipt& receipt : round.receipts) {
      for (const Elements& part : PiecesOf(receipt.range, piece)) {
        const std::size_t before =
            in_place ? UpToLastOverlap(pieces.outgoing, pieces.outgoing.size(), part) : 0;
        pieces.incoming.push_back({receipt.peer, part, receipt.combine, before});
      }
    }
  }
  return pieces;
}

std::vector<Pieces::Outgoing> OutgoingPieces(const Schedule& schedule, std::size_t piece) {
  std::vector<Pieces::Outgoing> outgoing;
  std::vector<Pieces::Incoming> incoming;
  for (const Round& round : schedule) {
    const std::size_t received = incoming.size();
    for (const Transfer& send : round.sends) {
      for (const Elements& part : PiecesOf(send.range, piece)) {
        outgoing.push_back({send.peer, part, UpToLastOverlap(incoming, received, part)});
      }
    }
    for (const Receipt& receipt : round.receipts) {
      for (const Elements& part : PiecesOf(receipt.range, piece)) {
        incoming.push_back({receipt.peer, part, receipt.combine, 0});
      }
    }
  }
  return outgoing;
}

// At least one, so that an empty range is a frame too: it says that its sender has come so far.
std::size_t PieceCount(const Elements& range, std::size_t piece) {
  return std::max<std::size_t>(1, ranges::PiecesOf(range, piece));
}

absl::Status Execute(const Communicator& communicator, const Schedule& schedule,
                     std::span<const std::byte> from, std::span<std::byte> to, std::size_t element,
                     Combine combine) {
  return Execution(communicator, from, to, element, combine).Run(schedule);
}

}  // namespace starling::collectives
