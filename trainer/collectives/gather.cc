// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/gather.h"

#include <array>
#include <numeric>
#include <vector>

#include "common/status/check.h"
#include "common/status/macros.h"

namespace starling::collectives {
namespace {

absl::Status WaitFor(const Communicator& communicator,
                     const std::vector<transport::Ticket>& tickets) {
  for (const transport::Ticket ticket : tickets) {
    RETURN_IF_ERROR(communicator.mesh.Wait(ticket, communicator.deadline));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Allgatherv(const Communicator& communicator, std::span<std::byte> data,
                        std::span<const std::size_t> sizes) {
  STARLING_CHECK(static_cast<int>(sizes.size()) == communicator.size() &&
                     std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) == data.size(),
                 "the parts of an allgather are one per rank and make up the whole");
  transport::Mesh& mesh = communicator.mesh;
  const auto part = [&](int rank) {
    const auto begin = std::accumulate(sizes.begin(), sizes.begin() + rank, std::size_t{0});
    return data.subspan(begin, sizes[rank]);
  };
  std::vector<transport::Ticket> tickets;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == communicator.rank()) continue;
    tickets.push_back(mesh.PostReceive(peer, communicator.tag, part(peer)));
    tickets.push_back(mesh.PostSend(peer, communicator.tag, part(communicator.rank())));
  }
  return WaitFor(communicator, tickets);
}

absl::Status Barrier(const Communicator& communicator) {
  const std::vector<std::size_t> nothing(communicator.size(), 0);
  return Allgatherv(communicator, {}, nothing);
}

}  // namespace starling::collectives
