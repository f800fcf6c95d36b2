// SPDX-License-Identifier: Apache-2.0
// How a member that lacks the base state gets it: from all holders at once, each sending its share.
//
// The state is a row of byte segments of the same sizes everywhere, those of the replicated parts
// (checkpoint::StateParts); share i of h is the i-th of h
// equal ranges of the whole row. Every holder also sends the checksum of the whole: the copy
// counts only if all of them agree and the received bytes have that one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/net/deadline.h"
#include "trainer/transport/mesh.h"

namespace starling::worker {

using Segments = std::span<const std::span<std::byte>>;

// The pieces of share `index` of `shares`, in order.
std::vector<std::span<std::byte>> ShareOf(Segments segments, size_t index, size_t shares);

// Sends share `index` of `shares` of the state to each of the ranks `copiers`.
absl::Status ServeState(transport::Mesh& mesh, Segments segments, size_t index, size_t shares,
                        std::span<const int> copiers, net::Deadline deadline);

// Fills `segments` from the ranks `holders`. DATA_LOSS when the holders' checksums differ from
// one another's or from that of the received bytes.
absl::Status CopyState(transport::Mesh& mesh, Segments segments, std::span<const int> holders,
                       net::Deadline deadline);

// Rank 0 sends `mine` to all others, who receive it in `staged`.
absl::Status SpreadState(transport::Mesh& mesh, Segments mine, Segments staged,
                         net::Deadline deadline);

}  // namespace starling::worker
