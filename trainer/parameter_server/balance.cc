// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/balance.h"

#include <algorithm>
#include <map>

namespace starling::parameter_server {
namespace {

using membership::MemberId;

// What the servers have to do, and to hold.
struct Burden {
  double load = 0;
  double weight = 0;

  void Add(double its_load, double its_weight) {
    load += its_load;
    weight += its_weight;
  }
};

struct Burdens {
  std::map<MemberId, Burden> of;
  Burden mean;
  MemberId busiest;
};

Burdens BurdensOf(const std::vector<BusyShard>& shards, const std::vector<MemberId>& servers) {
  Burdens burdens;
  for (const MemberId& id : servers) burdens.of[id];
  for (const BusyShard& shard : shards) {
    for (std::size_t i = 0; i < shard.chain.size(); ++i) {
      const auto server = burdens.of.find(shard.chain[i]);
      if (server != burdens.of.end()) server->second.Add(shard.loads[i], shard.weight);
    }
  }
  const Burden* most = nullptr;
  for (const auto& [id, burden] : burdens.of) {
    burdens.mean.load += burden.load / static_cast<double>(burdens.of.size());
    burdens.mean.weight += burden.weight / static_cast<double>(burdens.of.size());
    if (most != nullptr && burden.load <= most->load) continue;
    most = &burden;
    burdens.busiest = id;
  }
  return burdens;
}

bool TooBusy(const Burdens& burdens, const Balance& balance) {
  if (!balance.by_load || burdens.of.size() < 2) return false;
  const double load = burdens.of.at(burdens.busiest).load;
  return load >= balance.least && load > balance.hot * burdens.mean.load;
}

}  // namespace

bool Uneven(const std::vector<BusyShard>& shards, const std::vector<MemberId>& servers,
            const Balance& balance) {
  return TooBusy(BurdensOf(shards, servers), balance);
}

std::optional<Move> RelieveBusiest(const std::vector<BusyShard>& shards,
                                   const std::vector<MemberId>& servers, const Balance& balance) {
  const Burdens burdens = BurdensOf(shards, servers);
  if (!TooBusy(burdens, balance)) return std::nullopt;
  const Burden& busiest = burdens.of.at(burdens.busiest);
  const double full = (1 + balance.size_slack) * burdens.mean.weight;
  double best = (1 - balance.gain) * busiest.load;
  std::optional<Move> move;
  for (std::size_t at = 0; at < shards.size(); ++at) {
    const BusyShard& shard = shards[at];
    const auto place = std::find(shard.chain.begin(), shard.chain.end(), burdens.busiest);
    if (place == shard.chain.end()) continue;
    const auto position = static_cast<std::size_t>(place - shard.chain.begin());
    for (const MemberId& id : servers) {
      const Burden& other = burdens.of.at(id);
      const bool holds = std::find(shard.chain.begin(), shard.chain.end(), id) != shard.chain.end();
      if (holds || other.weight + shard.weight > full) continue;
      const double load = shard.loads[position];
      const double worse = std::max(busiest.load - load, other.load + load);
      if (worse >= best) continue;
      best = worse;
      move = Move{at, shard.chain};
      move->chain[position] = id;
    }
  }
  return move;
}

}  // namespace starling::parameter_server
