// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/hang_rule.h"

#include <algorithm>

namespace starling::membership {
namespace {

using Kind = Standing::Kind;

// By how much the patience with this member is used up; 1 and above: it hangs.
double UsedUp(const Standing& one, std::span<const Standing> members, const HangRule& rule) {
  const auto stands_too = [&](const Standing& other) {
    return other.kind == Kind::kWorks && 2 * other.since >= one.since;
  };
  const auto together = std::ranges::count_if(members, stands_too);  // itself among them
  const bool witness = std::ranges::any_of(members, [&](const Standing& other) {
    return other.kind != Kind::kAnnounced && !stands_too(other);
  });
  const absl::Duration patience =
      PatienceWith(one, rule) * static_cast<double>(together) * (witness ? 1 : rule.alone);
  return absl::FDivDuration(one.since, patience);
}

}  // namespace

absl::Duration PatienceWith(const Standing& standing, const HangRule& rule) {
  const bool warm = standing.stretches >= rule.warm_up_stretches;
  return std::max(warm ? rule.floor : rule.warm_up, rule.times * standing.usual);
}

std::optional<std::size_t> WhoHangs(std::span<const Standing> members, const HangRule& rule) {
  std::optional<std::size_t> who;
  double most = 1;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].kind != Kind::kWorks) continue;
    const double used = UsedUp(members[i], members, rule);
    if (used < most) continue;
    who = i;
    most = used;
  }
  return who;
}

}  // namespace starling::membership
