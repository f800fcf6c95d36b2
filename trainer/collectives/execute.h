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

#include "absl/status/status.h"
#include "trainer/collectives/communicator.h"
#include "trainer/collectives/reduce_op.h"
#include "trainer/collectives/schedule.h"

namespace starling::collectives {

// What `from` has is sent, what comes goes to `to`: the same memory, or two arrays that do not
// overlap. Both are of elements of `element` bytes. `combine` may be null where no receipt
// combines.
absl::Status Execute(const Communicator& communicator, const Schedule& schedule,
                     std::span<const std::byte> from, std::span<std::byte> to, std::size_t element,
                     Combine combine);

}  // namespace starling::collectives
