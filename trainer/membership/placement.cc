// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::membership {
namespace {

bool IsJoinable(const Participant& one) { return !one.leaving && one.phase != Phase::kLinger; }

std::vector<ReplicaGroup> GroupOf(Members members) {
  ReplicaGroup group;
  group.members = std::move(members);
  return {std::move(group)};
}

}  // namespace

// The reporting members of the view, then all strays: processes that were in an earlier view, as
// holders of a state or as witnesses. First-time joiners only if there are too few otherwise.
std::vector<ReplicaGroup> LockstepPlacement::Repair(const Scene& scene, std::string& waiting) {
  const Roster& roster = scene.roster;
  const auto& past = scene.history[scene.first].past();
  Members members;
  const auto add = [&](auto&& wanted) {
    for (const Participant* one : roster.Eligible(Role::kWorker)) {
      if (!Contains(members, one->id) && wanted(*one)) members.push_back(one->id);
    }
  };
  const auto size = [&] { return static_cast<std::int64_t>(members.size()); };
  const std::int64_t least = roster.workers.least;
  add([&](const Participant& one) {
    return scene.current != nullptr && scene.current->Has(one.id);
  });
  const bool survives = !members.empty();
  add([&](const Participant& one) {
    const bool was_in_a_view = (scene.first < one.groups.size() && one.groups[scene.first].state) ||
                               std::any_of(past.begin(), past.end(), [&](const auto& view) {
                                 return Contains(view.second, one.id);
                               });
    return was_in_a_view && (!survives || one.phase != Phase::kLinger);
  });
  const std::int64_t limit = survives ? least : std::max<std::int64_t>(1, roster.workers.most);
  add([&](const Participant& one) { return size() < limit && IsJoinable(one); });
  // Whoever returns is there, and joins as soon as these have synced.
  if (survives && size() + roster.returning < least) {
    waiting = absl::StrCat("waits for workers: ", size(), " of at least ", least, " are there");
  }
  return GroupOf(std::move(members));
}

// Join first, drain after.
std::vector<ReplicaGroup> LockstepPlacement::Plan(const Scene& scene) {
  const Roster& roster = scene.roster;
  const View& stands = scene.pending == nullptr ? *scene.current : *scene.pending;
  const Members& before = stands.groups[scene.first].members;
  const std::vector<const Participant*> eligible = roster.Eligible(Role::kWorker);
  const auto present = [&](const MemberId& id) {
    const Participant* one = roster.Find(id);
    return scene.current->Has(id) ||
           std::find(eligible.begin(), eligible.end(), one) != eligible.end();
  };
  // Without a change, only a prepared view that lost its joiner is worth replacing.
  const bool prepared =
      scene.pending != nullptr && std::all_of(before.begin(), before.end(), present);
  if (roster.idle || prepared) return GroupOf(before);
  Members members = scene.current->groups[scene.first].members;
  Members remaining;  // not leaving, and of too many those with the lowest indices
  for (const Participant* one : eligible) {
    const bool stays = scene.current->Has(one->id) && !one->leaving;
    const auto there = static_cast<std::int64_t>(remaining.size());
    if (stays && there < roster.workers.most) remaining.push_back(one->id);
  }
  std::int64_t room = roster.workers.most - static_cast<std::int64_t>(remaining.size());
  const std::size_t had = members.size();
  for (const Participant* one : eligible) {
    if (scene.current->Has(one->id) || !IsJoinable(*one) || room <= 0) continue;
    members.push_back(one->id);
    --room;
  }
  const bool drain = members.size() == had && remaining.size() < had &&
                     static_cast<std::int64_t>(remaining.size()) >= roster.workers.least;
  return GroupOf(drain ? std::move(remaining) : std::move(members));
}

}  // namespace starling::membership
