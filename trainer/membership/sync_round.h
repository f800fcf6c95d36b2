// SPDX-License-Identifier: Apache-2.0
// The decision at the start of every replica group's epoch: which member's state is the base, and
// whether the members may start at all. It is one pure function of the group and of all its
// members' SyncIds, so every member computes the same answer from the same messages.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "trainer/membership/rules.h"
#include "trainer/membership/types.h"

namespace starling::membership {

struct SyncDecision {
  // A view of `since` that may have settled steps that nobody here knows (0: none): LOST.
  ViewNumber missing_witness = 0;
  // A checkpoint of a higher incarnation was offered: these members are fenced (0: no).
  std::uint64_t fenced_by = 0;
  // The highest state, or nothing: everyone starts fresh.
  std::optional<StateId> base;
  Agreed agreed;  // of the base
  bool from_checkpoint = false;
  std::vector<MemberId> holders;  // in the order of the group
  std::vector<MemberId> copiers;
};

// The view of `since` for which neither a witness nor a waiver is there, the lowest; 0 if the rule
// holds. A witness of view u is a member of u that has not synced it: being here, it never will, so
// nothing was settled in u. Who has synced u or a later view has all that u settled.
ViewNumber MissingWitness(const ReplicaGroup& group, const std::map<MemberId, SyncId>& sync_ids,
                          const Rules& rules);

// `sync_ids` holds one of every member of `group`.
SyncDecision DecideSync(const ReplicaGroup& group, const std::map<MemberId, SyncId>& sync_ids,
                        const Rules& rules);

}  // namespace starling::membership
