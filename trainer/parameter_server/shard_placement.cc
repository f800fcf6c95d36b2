// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/shard_placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::parameter_server {
namespace {

using membership::Participant;
using membership::Role;
using membership::ViewMember;

std::vector<MemberId> StayingServers(const membership::Roster& roster) {
  std::vector<MemberId> servers;
  for (const Participant* one : roster.Staying(Role::kServer)) servers.push_back(one->id);
  return servers;
}

}  // namespace

bool HasClient(const View& view, const Client& client) {
  const ViewMember* member = view.Find(client.id);
  return member != nullptr && member->role == Role::kWorker && member->joined == client.joined;
}

ShardView ShardViewOf(const View& view, std::size_t shard) {
  ShardView mine;
  mine.group = view.groups[shard];
  for (const ViewMember& client : view.workers())
    mine.clients.push_back({client.id, client.joined});
  return mine;
}

ClientView ClientViewOf(const View& view, const MemberId& client) {
  ClientView mine;
  mine.number = view.number;
  const ViewMember* member = view.Find(client);
  if (member != nullptr && member->role == Role::kWorker) mine.joined = member->joined;
  for (const ReplicaGroup& chain : view.groups) {
    const ViewMember* head = view.Find(chain.members.front());
    if (head != nullptr && head->role == Role::kWorker) continue;  // the workers' own group
    mine.shards.push_back({chain.members.front(), chain.members.back()});
  }
  return mine;
}

std::vector<MemberId> RanksOf(const View& view) {
  std::vector<MemberId> ranks;
  for (const ViewMember& member : view.members) ranks.push_back(member.id);
  return ranks;
}

std::string ShardPlacement::Kept(std::size_t shard) const {
  return absl::StrCat("the last updates of shard ", shard);
}

// Whoever serves a shard and reports goes on.
std::vector<ReplicaGroup> ShardPlacement::Repair(const Scene& scene, std::string& /*waiting*/) {
  move_.reset();
  uneven_since_ = ahead_since_ = absl::InfiniteFuture();
  ahead_.clear();
  const Chain servers = StayingServers(scene.roster);
  std::vector<Chain> chains = Targets(scene, servers);
  for (std::size_t shard = 0; shard < chains.size(); ++shard) {
    chains[shard] = ChainFor(scene, shard, chains[shard], /*move=*/false);
  }
  return GroupsOf(scene, servers, std::move(chains));
}

// One view moves everything, once everything is ready.
std::vector<ReplicaGroup> ShardPlacement::Plan(const Scene& scene) {
  const Chain servers = StayingServers(scene.roster);
  if (move_ && (PlacedByLoad(scene, move_->shard, servers).empty() ||
                scene.newest->groups[scene.first + move_->shard].members == move_->chain)) {
    move_.reset();
  }
  std::vector<Chain> chains = Targets(scene, servers);
  const auto group = scene.newest->groups.begin() + static_cast<std::ptrdiff_t>(scene.first);
  if (std::equal(
          chains.begin(), chains.end(), group,
          [](const Chain& chain, const ReplicaGroup& now) { return chain == now.members; })) {
    Relieve(scene, servers);
    if (move_) chains = Targets(scene, servers);
  } else {
    uneven_since_ = absl::InfiniteFuture();
  }
  ahead_.clear();
  for (std::size_t shard = 0; shard < chains.size(); ++shard) {
    for (const MemberId& id : chains[shard]) {
      if (!Ready(scene, shard, id)) ahead_[id].push_back(shard);
    }
  }
  ahead_since_ = ahead_.empty() ? absl::InfiniteFuture() : std::min(ahead_since_, scene.now);
  const bool waits = !ahead_.empty() && scene.now - ahead_since_ < options_.ahead_patience;
  for (std::size_t shard = 0; shard < chains.size(); ++shard) {
    chains[shard] = waits ? scene.newest->groups[scene.first + shard].members
                          : ChainFor(scene, shard, chains[shard], /*move=*/true);
  }
  return GroupsOf(scene, servers, std::move(chains));
}

std::vector<ReplicaGroup> ShardPlacement::GroupsOf(const Scene& scene, const Chain& servers,
                                                   std::vector<Chain> chains) const {
  std::vector<ReplicaGroup> groups;
  for (std::size_t shard = 0; shard < chains.size(); ++shard) {
    ReplicaGroup& group = groups.emplace_back();
    group.members = std::move(chains[shard]);
    const Chain by_load = PlacedByLoad(scene, shard, servers);
    group.by_load = !by_load.empty() && group.members.size() >= by_load.size() &&
                    std::equal(by_load.rbegin(), by_load.rend(), group.members.rbegin());
  }
  return groups;
}

// Whether a server may be put into a chain that others serve.
bool ShardPlacement::Ready(const Scene& scene, std::size_t shard, const MemberId& server) const {
  if (scene.newest->groups[scene.first + shard].Has(server)) return true;
  const ShardReport* report = scene.roster.ReportOf(server, scene.first + shard);
  return report != nullptr && (report->state || report->cached);
}

// Of the newest view's chain, who reports.
ShardPlacement::Chain ShardPlacement::Serving(const Scene& scene, std::size_t shard) const {
  Chain chain;
  if (scene.newest == nullptr) return chain;
  chain = scene.newest->groups[scene.first + shard].members;
  std::erase_if(chain, [&](const MemberId& id) { return scene.roster.Reporting(id) == nullptr; });
  return chain;
}

ShardPlacement::Chain ShardPlacement::ChainFor(const Scene& scene, std::size_t shard,
                                               const Chain& target, bool move) const {
  Chain chain = Serving(scene, shard);
  if (chain.empty()) {
    // Nobody serves it: whoever is to, and whoever has the most.
    std::optional<StateId> best;
    chain = target;
    const auto state_of = [&](const MemberId& id) {
      const ShardReport* report = scene.roster.ReportOf(id, scene.first + shard);
      return report == nullptr ? std::nullopt : report->state;
    };
    for (const auto& [id, one] : scene.roster.participants) best = std::max(best, state_of(id));
    for (const auto& [id, one] : scene.roster.participants) {
      if (best && state_of(id) == best && !Contains(chain, id)) chain.insert(chain.begin(), id);
    }
    return chain;
  }
  const bool ready = std::all_of(target.begin(), target.end(),
                                 [&](const MemberId& id) { return Ready(scene, shard, id); });
  if (ready) return target.empty() ? chain : target;
  for (const MemberId& id : target) {
    if (move && Ready(scene, shard, id) && !Contains(chain, id)) chain.push_back(id);
  }
  return chain;
}

std::size_t ShardPlacement::ChainLength(std::size_t servers) const {
  return std::min(servers, static_cast<std::size_t>(std::max(1, options_.replication)));
}

// Where a shard was put, or is to be put, because another server was too busy; empty: it was not,
// or somebody there goes. (Before it, in the chain, there may still be a witness.)
ShardPlacement::Chain ShardPlacement::PlacedByLoad(const Scene& scene, std::size_t shard,
                                                   const Chain& servers) const {
  const std::size_t length = ChainLength(servers.size());
  Chain chain;
  if (move_ && move_->shard == shard) {
    chain = move_->chain;
  } else if (scene.newest != nullptr && scene.newest->groups[scene.first + shard].by_load) {
    const Chain& whole = scene.newest->groups[scene.first + shard].members;
    if (whole.size() >= length) chain.assign(whole.end() - static_cast<int>(length), whole.end());
  }
  const bool stays = std::all_of(chain.begin(), chain.end(),
                                 [&](const MemberId& id) { return Contains(servers, id); });
  return stays ? chain : Chain();
}

// By hash and size, but for what moved by load. (The others stay where they would be without it: a
// move must not set off others.)
std::vector<ShardPlacement::Chain> ShardPlacement::Targets(const Scene& scene,
                                                           const Chain& servers) const {
  const Chains placed = Place(options_.shards, servers, options_.weights, options_.replication);
  std::vector<Chain> targets;
  for (std::size_t shard = 0; shard < groups(); ++shard) {
    Chain& target = targets.emplace_back(PlacedByLoad(scene, shard, servers));
    const auto by_hash = placed.find(options_.shards[shard]);
    if (target.empty() && by_hash != placed.end()) target = by_hash->second;
  }
  return targets;
}

// While all chains are as they should be: has a server been too busy for long, and does it help to
// move one of its shards?
void ShardPlacement::Relieve(const Scene& scene, const Chain& servers) {
  std::vector<BusyShard> shards;
  for (std::size_t shard = 0; shard < groups(); ++shard) {
    BusyShard& busy = shards.emplace_back();
    busy.chain = scene.newest->groups[scene.first + shard].members;
    const auto weight = options_.weights.find(options_.shards[shard]);
    if (weight != options_.weights.end()) busy.weight = weight->second;
    for (const MemberId& id : busy.chain) {
      const ShardReport* report = scene.roster.ReportOf(id, scene.first + shard);
      busy.loads.push_back(report == nullptr ? 0 : static_cast<double>(report->load));
    }
  }
  if (!Uneven(shards, servers, options_.balance)) {
    uneven_since_ = absl::InfiniteFuture();
    return;
  }
  if (uneven_since_ == absl::InfiniteFuture()) uneven_since_ = scene.now;
  if (scene.now - uneven_since_ < options_.balance.patience) return;
  move_ = RelieveBusiest(shards, servers, options_.balance);
  uneven_since_ = absl::InfiniteFuture();
}

}  // namespace starling::parameter_server
