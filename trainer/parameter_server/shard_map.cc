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

std::uint64_t HashOf(const SlotId& slot) {
  return Mixed(Mixed(slot.table, slot.range.begin), slot.range.end);
}

// FNV-1a: the same on every machine, unlike std::hash.
std::uint64_t HashOf(const MemberId& server) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : server.pod_uid) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

double WeightOf(const std::map<SlotId, double>& weights, const SlotId& slot) {
  const auto weight = weights.find(slot);
  return weight == weights.end() ? 1 : weight->second;
}

}  // namespace

Chains Place(const std::vector<SlotId>& slots, const std::vector<MemberId>& servers,
             const std::map<SlotId, double>& weights, int replication) {
  Chains chains;
  if (servers.empty()) return chains;
  const std::size_t length =
      std::min(servers.size(), static_cast<std::size_t>(std::max(1, replication)));
  double total = 0;
  for (const SlotId& slot : slots) total += WeightOf(weights, slot) * static_cast<double>(length);
  const double full = (1 + kSlack) * total / static_cast<double>(servers.size());
  std::vector<SlotId> order = slots;
  std::sort(order.begin(), order.end(),
            [](const SlotId& a, const SlotId& b) { return HashOf(a) < HashOf(b); });
  std::map<MemberId, double> load;
  for (const SlotId& slot : order) {
    std::vector<MemberId> ranked = servers;
    std::sort(ranked.begin(), ranked.end(), [&](const MemberId& a, const MemberId& b) {
      return std::pair(Mixed(HashOf(slot), HashOf(a)), a) >
             std::pair(Mixed(HashOf(slot), HashOf(b)), b);
    });
    std::vector<MemberId>& chain = chains[slot];
    const double weight = WeightOf(weights, slot);
    // A slot heavier than what is left anywhere still needs a place: then the ranking alone counts.
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
