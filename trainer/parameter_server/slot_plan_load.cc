// SPDX-License-Identifier: Apache-2.0
// Where slots are to be: by hash and size, and by load where a server was too busy.
#include <algorithm>
#include <utility>

#include "trainer/parameter_server/slot_plan.h"

namespace starling::parameter_server {

std::size_t SlotPlan::ChainLength(std::size_t servers) const {
  return std::min(servers, static_cast<std::size_t>(std::max(1, options_.placement.replication)));
}

// Where a slot was put, or is to be put, because another server was too busy; empty: it was not, or
// somebody there goes. (Before it, in the chain, there may still be a witness.)
SlotPlan::Chain SlotPlan::PlacedByLoad(std::size_t slot, const Chain& servers) const {
  const std::size_t length = ChainLength(servers.size());
  Chain chain;
  if (move_ && move_->slot == slot) {
    chain = move_->chain;
  } else if (newest_.number != 0 && newest_.groups[slot].by_load) {
    const Chain& whole = newest_.groups[slot].members;
    if (whole.size() >= length) chain.assign(whole.end() - static_cast<int>(length), whole.end());
  }
  const bool stays =
      chain.size() == length && std::all_of(chain.begin(), chain.end(), [&](const MemberId& id) {
        return std::find(servers.begin(), servers.end(), id) != servers.end();
      });
  return stays ? chain : Chain();
}

// By hash and size, but for what moved by load. (The others stay where they would be without it: a
// move must not set off others.)
std::vector<SlotPlan::Chain> SlotPlan::Targets(const Chain& servers) const {
  const Chains placed = Place(options_.slots, servers, options_.weights, options_.placement);
  std::vector<Chain> targets;
  for (std::size_t slot = 0; slot < groups_.size(); ++slot) {
    Chain& target = targets.emplace_back(PlacedByLoad(slot, servers));
    const auto by_hash = placed.find(options_.slots[slot]);
    if (target.empty() && by_hash != placed.end()) target = by_hash->second;
  }
  return targets;
}

// While all chains are as they should be: has a server been too busy for long, and does it help to
// move one of its slots?
void SlotPlan::Relieve(const Chain& servers, absl::Time now) {
  std::vector<BusySlot> slots;
  for (std::size_t slot = 0; slot < groups_.size(); ++slot) {
    BusySlot& busy = slots.emplace_back();
    busy.chain = newest_.groups[slot].members;
    const auto weight = options_.weights.find(options_.slots[slot]);
    if (weight != options_.weights.end()) busy.weight = weight->second;
    for (const MemberId& id : busy.chain) {
      const SlotReport* report = ReportOf(id, slot);
      busy.loads.push_back(report == nullptr ? 0 : static_cast<double>(report->load));
    }
  }
  if (!Uneven(slots, servers, options_.balance)) {
    uneven_since_ = absl::InfiniteFuture();
    return;
  }
  if (uneven_since_ == absl::InfiniteFuture()) uneven_since_ = now;
  if (now - uneven_since_ < options_.balance.patience) return;
  move_ = RelieveBusiest(slots, servers, options_.balance);
  uneven_since_ = absl::InfiniteFuture();
}

}  // namespace starling::parameter_server
