// SPDX-License-Identifier: Apache-2.0
// Carries out a schedule over a mesh.
//
// Arrays travel in pieces of 256 KiB, which are reduced and passed on while they are in the
// second-level cache and while the rest still comes; a piece is sent as soon as what it is made of
// is there, whatever its round. Frames of one call come in the order of the schedule, so calls on
// one tag may follow one another.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "trainer/collectives/communicator.h"
#include "trainer/collectives/reduce_op.h"
#include "trainer/collectives/schedule.h"

namespace starling::collectives {

inline constexpr std::size_t kPieceBytes = 256 * 1024;

// What a rank does in a schedule, piece by piece. Sends are posted in their order, and so are
// receives; each waits for what it touches.
struct Pieces {
  struct Outgoing {
    int peer = 0;
    Elements range;
    std::size_t receives_before = 0;  // that this is made of, or follows
  };
  struct Incoming {
    int peer = 0;
    Elements range;
    bool combine = false;
    std::size_t sends_before = 0;  // of what was there
  };
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
};
// `piece`: elements at most. `in_place`: what is sent and what comes lie in the same memory.
Pieces CutIntoPieces(const Schedule& schedule, std::size_t piece, bool in_place);
// Of these, what is sent, in place: in a time that grows with their number and not its square.
std::vector<Pieces::Outgoing> OutgoingPieces(const Schedule& schedule, std::size_t piece);
std::size_t PieceCount(const Elements& range, std::size_t piece);

// What `from` has is sent, what comes goes to `to`: the same memory, or two arrays that do not
// overlap. Both are of elements of `element` bytes. `combine` may be null where no receipt
// combines.
absl::Status Execute(const Communicator& communicator, const Schedule& schedule,
                     std::span<const std::byte> from, std::span<std::byte> to, std::size_t element,
                     Combine combine);

}  // namespace starling::collectives
