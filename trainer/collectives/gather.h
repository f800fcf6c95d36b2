// SPDX-License-Identifier: Apache-2.0
// Collectives that copy: allgather, barrier. All ranks call with the same shapes.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "trainer/collectives/communicator.h"

namespace starling::collectives {

// Rank r owns the r-th of consecutive parts of `data`, of `sizes[r]` bytes (maybe 0; their sum is
// data.size()). Afterwards every rank has all parts. One message delay; each rank sends its part to
// n-1 others.
absl::Status Allgatherv(const Communicator& communicator, std::span<std::byte> data,
                        std::span<const std::size_t> sizes);

// Returns when every rank has entered.
absl::Status Barrier(const Communicator& communicator);

}  // namespace starling::collectives
