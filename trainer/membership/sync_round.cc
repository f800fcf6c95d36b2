// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/sync_round.h"

#include <algorithm>

namespace starling::membership {
namespace {

// Whether a is a later state than b. Without the rule only the step counts, as if ids had no view.
bool Later(const StateId& a, const StateId& b, const Rules& rules) {
  return rules.view_in_state_id ? a > b : a.step > b.step;
}

bool Same(const StateId& a, const StateId& b, const Rules& rules) {
  return rules.view_in_state_id ? a == b : a.step == b.step;
}

}  // namespace

ViewNumber MissingWitness(const ReplicaGroup& group, const std::map<MemberId, SyncId>& sync_ids,
                          const Rules& rules) {
  if (!rules.witness) return 0;
  ViewNumber synced = 0;
  for (const auto& [id, sync_id] : sync_ids) {
    if (sync_id.state) synced = std::max(synced, sync_id.state->view);
    if (!rules.checkpoint_is_no_witness && sync_id.checkpoint) {
      synced = std::max(synced, sync_id.checkpoint->name.view);
    }
  }
  ViewNumber missing = 0;
  for (const PastView& past : group.since) {
    const bool waived =
        std::find(group.waived.begin(), group.waived.end(), past.number) != group.waived.end();
    const bool witnessed = std::any_of(past.members.begin(), past.members.end(),
                                       [&](const MemberId& id) { return group.Has(id); });
    if (past.number > synced && !waived && !witnessed) {
      missing = missing == 0 ? past.number : std::min(missing, past.number);
    }
  }
  return missing;
}

SyncDecision DecideSync(const ReplicaGroup& group, const std::map<MemberId, SyncId>& sync_ids,
                        const Rules& rules) {
  SyncDecision decision;
  for (const auto& [id, sync_id] : sync_ids) {
    if (!sync_id.checkpoint) continue;
    const std::uint64_t incarnation = IncarnationOf(sync_id.checkpoint->name.view);
    if (rules.refuse_higher_checkpoint && incarnation > IncarnationOf(group.epoch)) {
      decision.fenced_by = std::max(decision.fenced_by, incarnation);
    }
  }
  decision.missing_witness = MissingWitness(group, sync_ids, rules);
  if (decision.fenced_by != 0 || decision.missing_witness != 0) return decision;

  for (const auto& [id, sync_id] : sync_ids) {
    if (sync_id.state && (!decision.base || Later(*sync_id.state, *decision.base, rules))) {
      decision.base = sync_id.state;
      decision.agreed = sync_id.agreed;
    }
  }
  for (const auto& [id, sync_id] : sync_ids) {
    const std::optional<CheckpointOffer>& offer = sync_id.checkpoint;
    if (offer && (!decision.base || Later(offer->name, *decision.base, rules))) {
      decision.base = offer->name;
      decision.agreed = offer->agreed;
      decision.from_checkpoint = true;
    }
  }
  for (const MemberId& id : group.members) {
    const SyncId& sync_id = sync_ids.at(id);
    const bool holds =
        !decision.base ||
        (decision.from_checkpoint
             ? sync_id.checkpoint && Same(sync_id.checkpoint->name, *decision.base, rules)
             : sync_id.state && Same(*sync_id.state, *decision.base, rules));
    (holds ? decision.holders : decision.copiers).push_back(id);
  }
  return decision;
}

}  // namespace starling::membership
