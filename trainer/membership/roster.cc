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

bool SameShape(const Roster& a, const Roster& b) {
  const auto wanted = [](const Roster::Wanted& one) {
    return std::tie(one.most, one.least, one.expected);
  };
  const auto all = [&](const Roster& one) {
    return std::tuple(wanted(one.workers), wanted(one.servers), one.idle, one.renew, one.returning);
  };
  const auto group = [](const GroupReport& one) {
    return std::tuple(one.state ? one.state->view : 0, one.state.has_value(), one.cached, one.lost);
  };
  const auto same = [&](const auto& x, const auto& y) {
    const auto key = [](const Participant& one) {
      return std::tie(one.id, one.role, one.liveness, one.leaving, one.admitted, one.fence,
                      one.installed, one.prepared, one.phase);
    };
    return key(x.second) == key(y.second) &&
           std::equal(x.second.groups.begin(), x.second.groups.end(), y.second.groups.begin(),
                      y.second.groups.end(), [&](const GroupReport& p, const GroupReport& q) {
                        return group(p) == group(q);
                      });
  };
  return all(a) == all(b) && std::equal(a.participants.begin(), a.participants.end(),
                                        b.participants.begin(), b.participants.end(), same);
}

bool EnoughIn(const View& view, const Roster& roster) {
  const auto enough = [](std::span<const ViewMember> members, const Roster::Wanted& wanted) {
    return static_cast<std::int64_t>(members.size()) >= std::min(wanted.most, wanted.least);
  };
  return enough(view.workers(), roster.workers) && enough(view.servers(), roster.servers);
}

}  // namespace starling::membership
