// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/types.h"

#include <algorithm>
#include <utility>

namespace starling::membership {

int ReplicaGroup::RankOf(const MemberId& id) const {
  const auto found = std::find(members.begin(), members.end(), id);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

const ViewMember* View::Find(const MemberId& id) const {
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const auto& one) { return one.id == id; });
  return found == members.end() ? nullptr : &*found;
}

int View::RankOf(const MemberId& id) const {
  const ViewMember* member = Find(id);
  return member == nullptr ? -1 : static_cast<int>(member - members.data());
}

const ReplicaGroup* View::GroupOf(const MemberId& id) const {
  const auto found =
      std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.Has(id); });
  return found == groups.end() ? nullptr : &*found;
}

std::span<const ViewMember> View::servers() const {
  const auto end = std::find_if(members.begin(), members.end(),
                                [](const auto& one) { return one.role != Role::kServer; });
  return {members.begin(), end};
}

std::span<const ViewMember> View::workers() const {
  return std::span(members).subspan(servers().size());
}

bool View::Restores(Role role) const {
  return std::any_of(groups.begin(), groups.end(), [&](const ReplicaGroup& group) {
    if (!group.restore || group.members.empty()) return false;
    const ViewMember* first = Find(group.members.front());
    return first != nullptr && first->role == role;
  });
}

View ViewOfPeers(ViewNumber number, std::vector<ViewMember> members) {
  View view;
  view.number = number;
  ReplicaGroup& group = view.groups.emplace_back();
  group.epoch = number;
  for (const ViewMember& member : members) group.members.push_back(member.id);
  view.members = std::move(members);
  return view;
}

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kOut:
      return "out";
    case Phase::kSync:
      return "sync";
    case Phase::kCopy:
      return "copy";
    case Phase::kRun:
      return "run";
    case Phase::kAborted:
      return "aborted";
    case Phase::kLost:
      return "lost";
    case Phase::kLinger:
      return "linger";
    case Phase::kDone:
      return "done";
  }
  return "unknown";
}

}  // namespace starling::membership
