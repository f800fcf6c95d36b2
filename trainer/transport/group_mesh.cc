// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/group_mesh.h"

#include <algorithm>
#include <utility>

#include "common/status/check.h"
#include "common/status/macros.h"

namespace starling::transport {
namespace {

int PlaceOf(int rank, const std::vector<int>& ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  STARLING_CHECK(found != ranks.end(), "a group's mesh is made by one of its members");
  return static_cast<int>(found - ranks.begin());
}

}  // namespace

GroupMesh::GroupMesh(Mesh& below, std::vector<int> ranks)
    : below_(below), ranks_(std::move(ranks)), rank_(PlaceOf(below.rank(), ranks_)) {}

int GroupMesh::Below(int rank) const {
  STARLING_CHECK(rank >= 0 && rank < size(), "a rank of the group");
  return ranks_[static_cast<std::size_t>(rank)];
}

Ticket GroupMesh::PostSend(int peer, Tag tag, std::span<const std::byte> data) {
  return *posted_.insert(below_.PostSend(Below(peer), tag, data)).first;
}

Ticket GroupMesh::PostReceive(int peer, Tag tag, std::span<std::byte> data) {
  return *posted_.insert(below_.PostReceive(Below(peer), tag, data)).first;
}

absl::Status GroupMesh::Wait(Ticket ticket, net::Deadline deadline) {
  posted_.erase(ticket);
  return below_.Wait(ticket, deadline);
}

absl::StatusOr<std::optional<Ticket>> GroupMesh::WaitAny(std::span<const Ticket> tickets,
                                                         net::Deadline deadline) {
  ASSIGN_OR_RETURN(const std::optional<Ticket> done, below_.WaitAny(tickets, deadline));
  if (done) posted_.erase(*done);
  return done;
}

absl::Status GroupMesh::WaitAll(net::Deadline deadline) {
  while (!posted_.empty()) RETURN_IF_ERROR(Wait(*posted_.begin(), deadline));
  return below_.status();
}

absl::StatusOr<std::string> GroupMesh::ReceiveMessage(int peer, Tag tag, std::size_t limit,
                                                      net::Deadline deadline) {
  return below_.ReceiveMessage(Below(peer), tag, limit, deadline);
}

}  // namespace starling::transport
