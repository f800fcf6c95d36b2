// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/shard_map.h"

#include <algorithm>

namespace starling::parameter_server {
namespace {

// How far above the mean, by weight, a server is full.
constexpr double kSlack = 0.15;

using membership::MemberId;

std::uint64_t Mixed(std::uint64_t a, std::uint64_t b) {
  return HashOfKey(HashOfKey(a) * 0x9e3779b97f4a7c15ULL + b);
}

std::uint64_t HashOf(const ShardId& shard) {
  return Mixed(Mixed(shard.table, shard.range.begin), shard.range.end);
}

// FNV-1a: the same on every machine, unlike std::hash.
std::uint64_t HashOf(const MemberId& server) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : server.pod_uid) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

double WeightOf(const std::map<ShardId, double>& weights, const ShardId& shard) {
  const auto weight = weights.find(shard);
  return weight == weights.end() ? 1 : weight->second;
}

}  // namespace

Chains Place(const std::vector<ShardId>& shards, const std::vector<MemberId>& servers,
             const std::map<ShardId, double>& weights, int replication) {
  Chains chains;
  if (servers.empty()) return chains;
  const std::size_t length =
      std::min(servers.size(), static_cast<std::size_t>(std::max(1, replication)));
  double total = 0;
  for (const ShardId& shard : shards)
    total += WeightOf(weights, shard) * static_cast<double>(length);
  const double full = (1 + kSlack) * total / static_cast<double>(servers.size());
  std::vector<ShardId> order = shards;
  std::sort(order.begin(), order.end(),
            [](const ShardId& a, const ShardId& b) { return HashOf(a) < HashOf(b); });
  std::map<MemberId, double> load;
  for (const ShardId& shard : order) {
    std::vector<MemberId> ranked = servers;
    std::sort(ranked.begin(), ranked.end(), [&](const MemberId& a, const MemberId& b) {
      return std::pair(Mixed(HashOf(shard), HashOf(a)), a) >
             std::pair(Mixed(HashOf(shard), HashOf(b)), b);
    });
    std::vector<MemberId>& chain = chains[shard];
    const double weight = WeightOf(weights, shard);
    // A shard heavier than what is left anywhere still needs a place: then the ranking alone
    // counts.
    for (const bool strict : {true, false}) {
      for (const MemberId& server : ranked) {
        if (chain.size() == length) break;
        if (std::find(chain.begin(), chain.end(), server) != chain.end()) continue;
        if (strict && load[server] + weight > full) continue;
        chain.push_back(server);
        load[server] += weight;
      }
    }
  }
  return chains;
}

}  // namespace starling::parameter_server
