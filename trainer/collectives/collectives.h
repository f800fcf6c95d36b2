// SPDX-License-Identifier: Apache-2.0
// What ranks do together besides an allreduce (allreduce.h): each a schedule and one call.
//
// Arrays are worked on in place; rank r's part of one is ranges::PartOf(length, r, n) where nothing
// else is said. As there: all ranks make the same calls with the same lengths, types, roots and
// operations in the same order, and a rank's failure ends the call on every rank with a status.
// INVALID_ARGUMENT, before anything travels, for a root that is no rank or a type without
// arithmetic.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "trainer/buffer/buffer.h"
#include "trainer/collectives/communicator.h"
#include "trainer/collectives/reduce_op.h"

namespace starling::collectives {

// This rank's part becomes the reduction of all ranks' arrays; the rest is unspecified.
absl::Status ReduceScatter(const Communicator& communicator, buffer::View data, ReduceOp op);

// Every rank brings its part, all get all.
absl::Status Allgather(const Communicator& communicator, buffer::View data);
// Likewise where parts have sizes of their own: `counts` elements, by rank, which make up the
// array.
absl::Status AllgatherV(const Communicator& communicator, buffer::View data,
                        std::span<const std::size_t> counts);

// The root's array becomes everybody's.
absl::Status Broadcast(const Communicator& communicator, buffer::View data, int root);
// The root's array becomes the reduction of all; the others' are unspecified.
absl::Status Reduce(const Communicator& communicator, buffer::View data, ReduceOp op, int root);
// The root gets every rank's part; what others have outside of theirs is unspecified.
absl::Status Gather(const Communicator& communicator, buffer::View data, int root);
// Every rank gets its part of the root's array; what it has outside of it is unspecified.
absl::Status Scatter(const Communicator& communicator, buffer::View data, int root);

// Part j of `from` goes to rank j, whose part i of `to` comes from rank i. The length is a multiple
// of the number of ranks; the arrays do not overlap.
absl::Status AllToAll(const Communicator& communicator, buffer::ConstView from, buffer::View to);

// Returns once every rank has called it.
absl::Status Barrier(const Communicator& communicator);

}  // namespace starling::collectives
