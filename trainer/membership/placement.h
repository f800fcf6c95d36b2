// SPDX-License-Identifier: Apache-2.0
// Where replica groups lie: a policy for each kind of group. ViewPlan decides when a view is due
// and what makes it safe; a placement only says which members each of its groups is to have.
//
// LockstepPlacement (below) is for workers that all hold the whole state: one group, of all of
// them. parameter_server::ShardPlacement is for shards: a chain of servers for each. To add a kind:
// implement Placement, and let its coordinator name it (Coordinator::MakePlacements).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/group_history.h"
#include "trainer/membership/roster.h"
#include "trainer/membership/types.h"

namespace starling::membership {

// Thread-compatible.
class Placement {
 public:
  // All that it is told.
  struct Scene {
    const Roster& roster;
    const View* newest;                        // that was published; null: there is none
    const View* current;                       // that took effect
    const View* pending;                       // prepared in the current one
    const std::vector<GroupHistory>& history;  // of all groups
    std::size_t first;                         // the placement's first group, in a view's list
    absl::Time now;
  };

  virtual ~Placement() = default;

  // How many groups it has in each view.
  virtual std::size_t groups() const = 0;
  // Who its groups consist of.
  virtual Role role() const = 0;
  // Its views take effect at a step's boundary where nothing broke; else all do immediately.
  virtual bool at_boundary() const { return false; }
  // What is kept in its group number `group`, for people: "the last steps".
  virtual std::string Kept(std::size_t group) const = 0;

  // Something of the current view has gone, or there is none: the groups of those who report, with
  // members and by_load alone filled in. If they are not to be formed yet, `waiting` says why.
  virtual std::vector<ReplicaGroup> Repair(const Scene& scene, std::string& waiting) = 0;
  // The current view runs: the groups as they are to be next. No view is made if these are those of
  // the newest one.
  virtual std::vector<ReplicaGroup> Plan(const Scene& scene) = 0;
};

// One group, of all workers. Who reports of the current view goes on, with all others who may know
// something; new ones are taken at a step's boundary, or where there would be too few.
class LockstepPlacement final : public Placement {
 public:
  std::size_t groups() const override { return 1; }
  Role role() const override { return Role::kWorker; }
  bool at_boundary() const override { return true; }
  std::string Kept(std::size_t) const override { return "the last steps"; }
  std::vector<ReplicaGroup> Repair(const Scene& scene, std::string& waiting) override;
  std::vector<ReplicaGroup> Plan(const Scene& scene) override;
};

}  // namespace starling::membership
