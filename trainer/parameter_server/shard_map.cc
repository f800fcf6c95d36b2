// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/shard_map.h"

#include <algorithm>

namespace starling::parameter_server {
namespace {

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

std::vector<SlotId> Cut(const std::vector<TableSpec>& tables, const Cutting& cutting) {
  std::vector<SlotId> slots;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const TableSpec& table = tables[t];
    const bool hashed = table.kind == TableKind::kSparse || table.kind == TableKind::kKeyValue;
    const std::uint64_t row_bytes = std::uint64_t{table.width} * sizeof(float);
    const std::uint64_t end = hashed ? kHashEnd : table.rows;
    const std::uint64_t bytes = table.rows * row_bytes;
    const std::uint64_t wanted =
        hashed ? static_cast<std::uint64_t>(cutting.hashed_slots)
               : (bytes + cutting.slot_bytes - 1) / std::max<std::uint64_t>(1, cutting.slot_bytes);
    const std::uint64_t parts =
        std::clamp<std::uint64_t>(wanted, 1, std::max<std::uint64_t>(1, end));
    std::uint64_t begin = 0;
    for (std::uint64_t i = 1; i <= parts; ++i) {
      // end / parts * i would leave the rest to the last; a hashed end times i would overflow.
      const std::uint64_t next = end / parts * i + end % parts * i / parts;
      slots.push_back({static_cast<std::uint32_t>(t), {begin, next}});
      begin = next;
    }
  }
  return slots;
}

std::vector<SlotId> SplitHot(const std::vector<SlotId>& slots,
                             const std::map<SlotId, double>& loads, double factor) {
  double total = 0;
  for (const SlotId& slot : slots) total += WeightOf(loads, slot);
  const double limit = factor * total / static_cast<double>(std::max<std::size_t>(1, slots.size()));
  std::vector<SlotId> split;
  for (const SlotId& slot : slots) {
    if (WeightOf(loads, slot) <= limit || slot.range.size() < 2) {
      split.push_back(slot);
      continue;
    }
    const std::uint64_t middle = slot.range.begin + slot.range.size() / 2;
    split.push_back({slot.table, {slot.range.begin, middle}});
    split.push_back({slot.table, {middle, slot.range.end}});
  }
  return split;
}

Chains Place(const std::vector<SlotId>& slots, const std::vector<MemberId>& servers,
             const std::map<SlotId, double>& weights, const Placement& placement) {
  Chains chains;
  if (servers.empty()) return chains;
  const std::size_t length =
      std::min(servers.size(), static_cast<std::size_t>(std::max(1, placement.replication)));
  double total = 0;
  for (const SlotId& slot : slots) total += WeightOf(weights, slot) * static_cast<double>(length);
  const double full = (1 + placement.slack) * total / static_cast<double>(servers.size());
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

double MovedShare(const Chains& from, const Chains& to, const std::map<SlotId, double>& weights) {
  double moved = 0, total = 0;
  for (const auto& [slot, chain] : to) {
    const auto before = from.find(slot);
    for (const MemberId& server : chain) {
      total += WeightOf(weights, slot);
      if (before == from.end() ||
          std::find(before->second.begin(), before->second.end(), server) == before->second.end()) {
        moved += WeightOf(weights, slot);
      }
    }
  }
  return total == 0 ? 0 : moved / total;
}

const SlotId* Find(const std::vector<SlotId>& slots, std::uint32_t table, std::uint64_t row) {
  const auto found = std::find_if(slots.begin(), slots.end(), [&](const SlotId& slot) {
    return slot.table == table && slot.range.Holds(row);
  });
  return found == slots.end() ? nullptr : &*found;
}

}  // namespace starling::parameter_server
