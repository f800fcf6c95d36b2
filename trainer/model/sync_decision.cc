// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/sync_decision.h"

#include <map>

#include "trainer/membership/sync_round.h"

namespace starling::model {
namespace {

membership::MemberId IdOf(int member) {
  return {std::string(1, static_cast<char>('a' + member)), 0};
}

std::string KeyOf(const SyncQuestion& question) {
  std::string key;
  const auto add = [&](int number) { key.push_back(static_cast<char>(number)); };
  add(question.epoch);
  add(static_cast<int>(question.members.size()));
  for (const SyncQuestion::Holding& member : question.members) {
    add(member.member);
    add(member.epoch);
    add(member.index);
  }
  for (const SyncQuestion::Past& past : question.since) {
    add(past.epoch);
    add(past.waived ? 1 : 0);
    add(static_cast<int>(past.members.size()));
    for (const int member : past.members) add(member);
  }
  return key;
}

}  // namespace

SyncDecision SyncDecider::Decide(const SyncQuestion& question) {
  const auto [known, is_new] = known_.try_emplace(KeyOf(question));
  if (!is_new) return known->second;
  const auto number = [](int epoch) { return static_cast<membership::ViewNumber>(epoch); };
  membership::ReplicaGroup group;
  group.epoch = number(question.epoch);
  std::map<membership::MemberId, membership::SyncId> sync_ids;
  for (const SyncQuestion::Holding& member : question.members) {
    const membership::MemberId id = IdOf(member.member);
    group.members.push_back(id);
    membership::SyncId& sync_id = sync_ids[id];
    sync_id.view = group.epoch;
    sync_id.member = id;
    if (member.epoch != 0) sync_id.state = membership::StateId{number(member.epoch), member.index};
  }
  for (const SyncQuestion::Past& past : question.since) {
    membership::PastView& one = group.since.emplace_back();
    one.number = number(past.epoch);
    for (const int member : past.members) one.members.push_back(IdOf(member));
    if (past.waived) group.waived.push_back(one.number);
  }
  const membership::SyncDecision decision = membership::DecideSync(group, sync_ids, rules_);
  known->second.missing_witness = static_cast<int>(decision.missing_witness);
  for (const membership::MemberId& holder : decision.holders) {
    known->second.holders |= static_cast<std::uint8_t>(1 << (holder.pod_uid[0] - 'a'));
  }
  return known->second;
}

}  // namespace starling::model
