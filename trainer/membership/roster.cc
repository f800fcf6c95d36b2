// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/roster.h"

#include <algorithm>
#include <tuple>

namespace starling::membership {

const Participant* Roster::Find(const MemberId& id) const {
  const auto found = participants.find(id);
  return found == participants.end() ? nullptr : &found->second;
}

const Participant* Roster::Reporting(const MemberId& id) const {
  const Participant* one = Find(id);
  return one != nullptr && one->liveness == Liveness::kReporting ? one : nullptr;
}

const GroupReport* Roster::ReportOf(const MemberId& id, std::size_t group) const {
  const Participant* one = Reporting(id);
  return one != nullptr && group < one->groups.size() ? &one->groups[group] : nullptr;
}

// Its pod is gone, or a later process of its pod is known: the supervisor reaps before it starts.
bool Roster::Ended(const MemberId& id) const {
  const auto newest = participants.lower_bound({id.pod_uid, 0});
  return newest == participants.end() || newest->first.pod_uid != id.pod_uid ||
         newest->first.start > id.start;
}

std::vector<const Participant*> Roster::Eligible(Role role) const {
  std::vector<const Participant*> eligible;
  for (const auto& [id, one] : participants) {
    const bool may = one.liveness == Liveness::kReporting && one.admitted;
    if (one.role == role && may) eligible.push_back(&one);
  }
  std::sort(eligible.begin(), eligible.end(), [](const Participant* a, const Participant* b) {
    return std::tie(a->index, a->id) < std::tie(b->index, b->id);
  });
  return eligible;
}

std::vector<const Participant*> Roster::Staying(Role role) const {
  std::vector<const Participant*> staying = Eligible(role);
  std::erase_if(
      staying, [](const Participant* one) { return one->leaving || one->phase == Phase::kLinger; });
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(0, WantedOf(role).most));
  if (staying.size() > most) staying.resize(most);
  return staying;
}

bool SameShape(const Participant& a, const Participant& b) {
  const auto key = [](const Participant& one) {
    return std::tie(one.id, one.leaving, one.fence, one.installed, one.prepared, one.phase);
  };
  const auto same = [](const GroupReport& x, const GroupReport& y) {
    return (x.state ? x.state->view : 0) == (y.state ? y.state->view : 0) && x.cached == y.cached &&
           x.lost == y.lost;
  };
  return key(a) == key(b) &&
         std::equal(a.groups.begin(), a.groups.end(), b.groups.begin(), b.groups.end(), same);
}

bool EnoughIn(const View& view, const Roster& roster) {
  const auto enough = [](std::span<const ViewMember> members, const Roster::Wanted& wanted) {
    return static_cast<std::int64_t>(members.size()) >= std::min(wanted.most, wanted.least);
  };
  return enough(view.workers(), roster.workers) && enough(view.servers(), roster.servers);
}

}  // namespace starling::membership
