// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/group_history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/membership/sync_round.h"

namespace starling::membership {
void GroupHistory::Learn(const ReplicaGroup& group) {
  past_[group.epoch] = group.members;
  for (const PastView& past : group.since) past_.emplace(past.number, past.members);
}

void GroupHistory::LearnState(const MemberId& member, const StateId& state) {
  ViewNumber& synced = synced_[member];
  synced = std::max(synced, state.view);
}

bool GroupHistory::SyncedByAll(ViewNumber epoch, const Members& members) const {
  return std::all_of(members.begin(), members.end(), [&](const MemberId& id) {
    const auto synced = synced_.find(id);
    return synced != synced_.end() && synced->second >= epoch;
  });
}

void GroupHistory::Prune(const std::function<bool(const MemberId&)>& ended) {
  const auto newest = std::find_if(past_.rbegin(), past_.rend(), [this](const auto& past) {
    return !rules_.prune_synced || SyncedByAll(past.first, past.second);
  });
  if (newest == past_.rend()) return;
  const auto [epoch, members] = *newest;
  std::erase_if(past_, [&, epoch = epoch, &members = members](const auto& past) {
    return past.first < epoch &&
           std::all_of(past.second.begin(), past.second.end(), [&](const MemberId& id) {
             return !rules_.prune_synced || Contains(members, id) || ended(id);
           });
  });
  std::erase_if(synced_, [this](const auto& synced) {
    return std::none_of(past_.begin(), past_.end(),
                        [&](const auto& past) { return Contains(past.second, synced.first); });
  });
}

bool GroupHistory::MayReturn(ViewNumber known,
                             const std::function<bool(const MemberId&)>& ended) const {
  const bool nobody_left = std::all_of(past_.begin(), past_.end(), [&](const auto& past) {
    return std::all_of(past.second.begin(), past.second.end(), ended);
  });
  if (nobody_left) return true;
  const ViewNumber newest = past_.rbegin()->first;
  return known <= newest && std::any_of(synced_.begin(), synced_.end(), [&](const auto& synced) {
           return synced.second >= newest && !ended(synced.first);
         });
}

ViewNumber GroupHistory::Form(ReplicaGroup& group, const Evidence& evidence) const {
  for (const auto& [epoch, past] : past_) {
    group.since.push_back({epoch, past});
    if (!rules_.waive_ended || std::all_of(past.begin(), past.end(), evidence.ended)) {
      group.waived.push_back(epoch);
    }
  }
  ViewNumber synced = 0, missing = 0;
  while (true) {
    std::map<MemberId, SyncId> expected;
    for (const MemberId& id : group.members) {
      const std::optional<StateId> state = expected[id].state = evidence.state(id);
      if (state) synced = std::max(synced, state->view);
    }
    missing = MissingWitness(group, expected, rules_);
    if (missing == 0 || !evidence.witness) break;
    const Members& past = past_.at(missing);
    const auto witness = std::find_if(past.begin(), past.end(), evidence.witness);
    if (witness == past.end()) break;
    group.members.insert(group.members.begin(), *witness);
  }
  group.restore = synced == 0 || evidence.newest_unknown ||
                  std::any_of(group.waived.begin(), group.waived.end(),
                              [&](ViewNumber epoch) { return epoch > synced; });
  return missing;
}

std::string MissingWitnessText(absl::string_view what, absl::string_view who, ViewNumber missing) {
  return absl::StrCat(what, " may be known only to ", who, " that do not answer (view ",
                      IncarnationOf(missing), "-", EpochOf(missing),
                      "); waits for them, or for proof that they have ended");
}

}  // namespace starling::membership
