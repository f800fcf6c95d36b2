// SPDX-License-Identifier: Apache-2.0
// The reproducible sum: the same bits however the parts are spread over ranks.
//
// Float addition is not associative, so a sum over ranks depends on how many there are. Here the
// batch is cut into a fixed number of groups, whoever computes them, and every element is added in
// group order 0..G-1 by its one owner, then copied to all. About G/n times the bytes of a ring.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "trainer/collectives/communicator.h"

namespace starling::collectives {

// `mine` are the gradients of this rank's groups, ranges::PartOf(groups, rank, size), perhaps none,
// in group order, each as long as `sum`, which receives ((g0 + g1) + g2) + ... at every rank. `sum`
// overlaps none of them. `groups` is at least 1.
absl::Status GroupedReduce(const Communicator& communicator, int groups,
                           std::span<const std::span<const float>> mine, std::span<float> sum);

}  // namespace starling::collectives
