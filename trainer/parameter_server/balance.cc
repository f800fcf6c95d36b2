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

Burdens BurdensOf(const std::vector<BusySlot>& slots, const std::vector<MemberId>& servers) {
  Burdens burdens;
  for (const MemberId& id : servers) burdens.of[id];
  for (const BusySlot& slot : slots) {
    for (std::size_t i = 0; i < slot.chain.size(); ++i) {
      const auto server = burdens.of.find(slot.chain[i]);
      if (server != burdens.of.end()) server->second.Add(slot.loads[i], slot.weight);
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

bool Uneven(const std::vector<BusySlot>& slots, const std::vector<MemberId>& servers,
            const Balance& balance) {
  return TooBusy(BurdensOf(slots, servers), balance);
}

std::optional<Move> RelieveBusiest(const std::vector<BusySlot>& slots,
                                   const std::vector<MemberId>& servers, const Balance& balance) {
  const Burdens burdens = BurdensOf(slots, servers);
  if (!TooBusy(burdens, balance)) return std::nullopt;
  const Burden& busiest = burdens.of.at(burdens.busiest);
  const double full = (1 + balance.size_slack) * burdens.mean.weight;
  double best = (1 - balance.gain) * busiest.load;
  std::optional<Move> move;
  for (std::size_t at = 0; at < slots.size(); ++at) {
    const BusySlot& slot = slots[at];
    const auto place = std::find(slot.chain.begin(), slot.chain.end(), burdens.busiest);
    if (place == slot.chain.end()) continue;
    const auto position = static_cast<std::size_t>(place - slot.chain.begin());
    for (const MemberId& id : servers) {
      const Burden& other = burdens.of.at(id);
      const bool holds = std::find(slot.chain.begin(), slot.chain.end(), id) != slot.chain.end();
      if (holds || other.weight + slot.weight > full) continue;
      const double load = slot.loads[position];
      const double worse = std::max(busiest.load - load, other.load + load);
      if (worse >= best) continue;
      best = worse;
      move = Move{at, slot.chain};
      move->chain[position] = id;
    }
  }
  return move;
}

}  // namespace starling::parameter_server
