// SPDX-License-Identifier: Apache-2.0
// Some of the members of a view, as a mesh of their own: a collective of a replica group runs over
// it beside whatever else travels in the view.
//
// Ranks are those of the group; links, and the thread that may use them, are those of the mesh
// below. What is posted here may be waited for here alone: WaitAll is about transfers of the group,
// while receives that others have posted below stay open.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "trainer/transport/mesh.h"

namespace starling::transport {

// See Mesh.
class GroupMesh final : public Mesh {
 public:
  // `ranks`: of the group's members in `below`, by their rank in the group; this rank is one of
  // them. `below` outlives it.
  GroupMesh(Mesh& below, std::vector<int> ranks);

  std::uint64_t view() const override { return below_.view(); }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  const std::string& member(int rank) const override { return below_.member(Below(rank)); }

  Ticket PostSend(int peer, Tag tag, std::span<const std::byte> data) override;
  Ticket PostReceive(int peer, Tag tag, std::span<std::byte> data) override;
  absl::Status Wait(Ticket ticket, net::Deadline deadline) override;
  absl::StatusOr<std::optional<Ticket>> WaitAny(std::span<const Ticket> tickets,
                                                net::Deadline deadline) override;
  absl::Status WaitAll(net::Deadline deadline) override;
  absl::StatusOr<std::string> ReceiveMessage(int peer, Tag tag, std::size_t limit,
                                             net::Deadline deadline) override;
  void SetOthersIdle(bool idle) override { below_.SetOthersIdle(idle); }
  bool others_idle() const override { return below_.others_idle(); }
  void Wake() override { below_.Wake(); }
  // Ends the mesh below.
  void Cancel(const absl::Status& reason) override { below_.Cancel(reason); }
  absl::Status status() const override { return below_.status(); }
  Traffic traffic(int peer) const override { return below_.traffic(Below(peer)); }
  bool SharesMemory(int peer) const override { return below_.SharesMemory(Below(peer)); }
  bool Encrypts(int peer) const override { return below_.Encrypts(Below(peer)); }
  bool SendsDatagrams(int peer) const override { return below_.SendsDatagrams(Below(peer)); }
  const Shaping& shaping() const override { return below_.shaping(); }

 private:
  int Below(int rank) const;

  Mesh& below_;
  const std::vector<int> ranks_;
  const int rank_;
  std::set<Ticket> posted_;  // and not waited for
};

}  // namespace starling::transport
