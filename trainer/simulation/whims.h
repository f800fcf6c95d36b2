// SPDX-License-Identifier: Apache-2.0
// Chains as nobody would plan them: until the faults stop, a shard is now and then put into the
// hands of any servers, in any order, at once, whether they are ready or not. When such a view is
// due, and what makes it safe, stays the coordinator's.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/membership/placement.h"
#include "trainer/simulation/world.h"

namespace starling::simulation {

// Thread-compatible.
class Whims final : public membership::Placement {
 public:
  // `world` outlives it.
  Whims(std::shared_ptr<membership::Placement> planned, World& world)
      : planned_(std::move(planned)), world_(world) {}

  std::size_t groups() const override { return planned_->groups(); }
  Role role() const override { return planned_->role(); }
  std::string Kept(std::size_t group) const override { return planned_->Kept(group); }
  std::vector<membership::ReplicaGroup> Repair(const Scene& scene, std::string& waiting) override {
    return Disturbed(scene, planned_->Repair(scene, waiting), 0.5);
  }
  std::vector<membership::ReplicaGroup> Plan(const Scene& scene) override {
    return Disturbed(scene, planned_->Plan(scene), 0.15);
  }

 private:
  std::vector<membership::ReplicaGroup> Disturbed(const Scene& scene,
                                                  std::vector<membership::ReplicaGroup> groups,
                                                  double probability) {
    if (!world_.Disturbs(probability)) return groups;
    std::vector<MemberId> servers;
    for (const auto* one : scene.roster.Staying(role())) servers.push_back(one->id);
    for (membership::ReplicaGroup& group : groups) {
      if (servers.empty() || group.members.empty() || !world_.Chance(0.7)) continue;
      const auto most =
          static_cast<std::int64_t>(std::min(servers.size(), group.members.size() + 1));
      for (std::size_t i = servers.size() - 1; i > 0; --i) {
        std::swap(
            servers[i],
            servers[static_cast<std::size_t>(world_.Random(0, static_cast<std::int64_t>(i)))]);
      }
      group.members.assign(servers.begin(), servers.begin() + world_.Random(1, most));
    }
    return groups;
  }

  const std::shared_ptr<membership::Placement> planned_;
  World& world_;
};

}  // namespace starling::simulation
