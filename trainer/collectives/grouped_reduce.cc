// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/grouped_reduce.h"

#include <vector>

#include "common/ranges/ranges.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "trainer/kernels/span_math.h"

namespace starling::collectives {
namespace {

// Elements of a group's gradient that travel as one frame: those of 16 groups, twice, fill the
// second-level cache.
constexpr std::size_t kPiece = 8 * 1024;

// The copies travel beside parts of other sums.
constexpr std::uint32_t kCopyPhase = 1U << 31;

// One rank's part in one call.
class Reduction {
 public:
  Reduction(const Communicator& communicator, int groups,
            std::span<const std::span<const float>> mine, std::span<float> sum)
      : communicator_(communicator),
        mesh_(communicator.mesh),
        groups_(groups),
        my_groups_(ranges::PartOf(groups, communicator.rank(), communicator.size())),
        mine_(mine),
        sum_(sum),
        scratch_(communicator.workspace.Floats(2 * static_cast<std::size_t>(groups) * kPiece)),
        receives_(2 * static_cast<std::size_t>(groups)) {}

  absl::Status Run() {
    PostCopies();
    PostParts();
    const ranges::Range<std::size_t> own = RangeOf(communicator_.rank());
    const std::size_t pieces = ranges::PiecesOf(own, kPiece);
    if (pieces > 0) PostPiece(0);
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      if (piece + 1 < pieces) PostPiece(piece + 1);
      RETURN_IF_ERROR(AddPiece(piece));
    }
    for (int peer = 0; peer < communicator_.size(); ++peer) {
      if (peer == communicator_.rank() || own.size() == 0) continue;
      tickets_.push_back(mesh_.PostSend(peer, CopyTag(), std::as_bytes(own.Of(sum_))));
    }
    for (const transport::Ticket ticket : tickets_) {
      RETURN_IF_ERROR(mesh_.Wait(ticket, communicator_.deadline));
    }
    return absl::OkStatus();
  }

 private:
  ranges::Range<std::size_t> RangeOf(int rank) const {
    return ranges::PartOf(sum_.size(), rank, communicator_.size());
  }

  transport::Tag CopyTag() const {
    return {communicator_.tag.step, communicator_.tag.channel | kCopyPhase};
  }

  // The other owners' finished ranges come straight into place.
  void PostCopies() {
    for (int peer = 0; peer < communicator_.size(); ++peer) {
      const ranges::Range<std::size_t> range = RangeOf(peer);
      if (peer == communicator_.rank() || range.size() == 0) continue;
      tickets_.push_back(
          mesh_.PostReceive(peer, CopyTag(), std::as_writable_bytes(range.Of(sum_))));
    }
  }

  // Our groups' parts of the ranges that others own, in the order in which they add them.
  void PostParts() {
    for (int peer = 0; peer < communicator_.size(); ++peer) {
      if (peer == communicator_.rank()) continue;
      const ranges::Range<std::size_t> range = RangeOf(peer);
      for (std::size_t piece = 0; piece < ranges::PiecesOf(range, kPiece); ++piece) {
        for (const std::span<const float> gradient : mine_) {
          const auto part = ranges::PieceOf(range, piece, kPiece).Of(gradient);
          tickets_.push_back(mesh_.PostSend(peer, communicator_.tag, std::as_bytes(part)));
        }
      }
    }
  }

  // Where piece `piece` of group `group`'s gradient is received: pieces take turns.
  std::size_t SlotOf(std::size_t piece, int group) const {
    return piece % 2 * static_cast<std::size_t>(groups_) + static_cast<std::size_t>(group);
  }
  std::span<float> Scratch(std::size_t piece, int group, std::size_t length) const {
    return scratch_.subspan(SlotOf(piece, group) * kPiece, length);
  }

  void PostPiece(std::size_t piece) {
    const ranges::Range<std::size_t> range =
        ranges::PieceOf(RangeOf(communicator_.rank()), piece, kPiece);
    for (int peer = 0; peer < communicator_.size(); ++peer) {
      if (peer == communicator_.rank()) continue;
      const ranges::Range<int> theirs = ranges::PartOf(groups_, peer, communicator_.size());
      for (int group = theirs.begin; group < theirs.end; ++group) {
        receives_[SlotOf(piece, group)] = mesh_.PostReceive(
            peer, communicator_.tag, std::as_writable_bytes(Scratch(piece, group, range.size())));
      }
    }
  }

  absl::Status AddPiece(std::size_t piece) {
    const ranges::Range<std::size_t> range =
        ranges::PieceOf(RangeOf(communicator_.rank()), piece, kPiece);
    const std::span<float> sum = range.Of(sum_);
    for (int group = 0; group < groups_; ++group) {
      std::span<const float> gradient = Scratch(piece, group, range.size());
      if (group >= my_groups_.begin && group < my_groups_.end) {
        gradient = range.Of(mine_[group - my_groups_.begin]);
      } else {
        RETURN_IF_ERROR(mesh_.Wait(receives_[SlotOf(piece, group)], communicator_.deadline));
      }
      // Copied, not added to zero: -0 stays -0.
      if (group == 0) {
        kernels::Copy(gradient, sum);
      } else {
        kernels::Add(gradient, sum);
      }
    }
    return absl::OkStatus();
  }

  const Communicator& communicator_;
  transport::Mesh& mesh_;
  const int groups_;
  const ranges::Range<int> my_groups_;
  const std::span<const std::span<const float>> mine_;
  const std::span<float> sum_;
  const std::span<float> scratch_;
  std::vector<transport::Ticket> receives_;  // by slot
  std::vector<transport::Ticket> tickets_;   // all others
};

}  // namespace

absl::Status GroupedReduce(const Communicator& communicator, int groups,
                           std::span<const std::span<const float>> mine, std::span<float> sum) {
  STARLING_CHECK(groups >= 1, "a batch has at least one group");
  const ranges::Range<int> expected =
      ranges::PartOf(groups, communicator.rank(), communicator.size());
  STARLING_CHECK(static_cast<int>(mine.size()) == expected.size(),
                 "a rank brings the gradients of exactly its groups");
  for (const std::span<const float> gradient : mine) {
    STARLING_CHECK(gradient.size() == sum.size(), "all groups' gradients are as long as the sum");
  }
  return Reduction(communicator, groups, mine, sum).Run();
}

}  // namespace starling::collectives
