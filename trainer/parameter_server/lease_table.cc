// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/lease_table.h"

#include <algorithm>

namespace starling::parameter_server {

void LeaseTable::OnView(const View& view) {
  if (view.number <= view_.number) return;
  const bool first = view_.number == 0;
  view_ = view;
  if (first || view.Restores(membership::Role::kServer)) {
    since_ = view.number;
    done_.Clear();
  }
  std::erase_if(holders_, [&](const auto& held) { return !HasClient(view, held.second); });
  std::erase_if(finished_, [&](const auto& one) { return !HasClient(view, one.first); });
  std::erase_if(returned_, [&](const auto& one) { return !HasClient(view, one.second.by); });
}

// A lease is done when every shard has it.
void LeaseTable::OnLedger(ViewNumber view, std::size_t shard, const LeaseLedger& ledger) {
  if (shard >= ledgers_.size() || view < ledgers_[shard].view) return;
  ledgers_[shard] = {view, ledger};
  if (!Informed()) return;
  for (const auto& [first, end] : ledger.intervals()) {
    for (Lease lease = done_.NotIn(first); lease < end; lease = done_.NotIn(lease + 1)) {
      const bool everywhere =
          std::all_of(ledgers_.begin(), ledgers_.end(),
                      [&](const Known& known) { return known.ledger.Has(lease); });
      if (!everywhere) continue;
      Finish(lease);
    }
  }
}

bool LeaseTable::Informed() const {
  return since_ != 0 && std::all_of(ledgers_.begin(), ledgers_.end(),
                                    [&](const Known& known) { return known.view >= since_; });
}

void LeaseTable::OnHeld(Lease lease, const Client& client) {
  if (HasClient(view_, client) && !done_.Has(lease)) holders_.emplace(lease, client);
}

void LeaseTable::OnDone(Lease lease, const Client& client) {
  if (!HasClient(view_, client) || lease == 0 || lease > leases_) return;
  Finish(lease);
}

bool LeaseTable::OnReturned(Lease lease, const Client& client, absl::Time now) {
  const auto holder = holders_.find(lease);
  if (holder == holders_.end() || holder->second != client) return false;
  holders_.erase(holder);
  returned_.insert_or_assign(lease, Returned{client, now});
  return true;
}

void LeaseTable::ForgetReturned(absl::Time then) {
  std::erase_if(returned_, [&](const auto& one) { return one.second.at < then; });
}

void LeaseTable::Finish(Lease lease) {
  done_.Add(lease);
  returned_.erase(lease);
  const auto holder = holders_.find(lease);
  if (holder == holders_.end()) return;
  ++finished_[holder->second];
  holders_.erase(holder);
}

bool LeaseTable::ReturnedBy(Lease lease, const Client& client) const {
  const auto returned = returned_.find(lease);
  return returned != returned_.end() && returned->second.by == client;
}

std::int64_t LeaseTable::FinishedBy(const Client& client) const {
  const auto finished = finished_.find(client);
  return finished == finished_.end() ? 0 : finished->second;
}

std::vector<Lease> LeaseTable::Take(const Client& client, std::size_t most) {
  std::vector<Lease> taken;
  if (!Informed() || !HasClient(view_, client)) return taken;
  for (Lease lease = done_.NotIn(1); lease <= leases_ && taken.size() < most;
       lease = done_.NotIn(lease + 1)) {
    if (ReturnedBy(lease, client)) continue;
    if (holders_.emplace(lease, client).second) taken.push_back(lease);
  }
  return taken;
}

std::size_t LeaseTable::Deal(Lease end, const std::vector<Client>& clients,
                             const std::function<std::size_t(Lease)>& rank) {
  std::size_t dealt = 0;
  if (!Informed() || clients.empty()) return dealt;
  for (Lease lease = done_.NotIn(1); lease < end && lease <= leases_;
       lease = done_.NotIn(lease + 1)) {
    if (holders_.contains(lease)) continue;
    std::size_t to = rank(lease);
    if (ReturnedBy(lease, clients[to])) {
      to = (to + 1) % clients.size();
      if (ReturnedBy(lease, clients[to])) continue;
    }
    holders_.emplace(lease, clients[to]);
    ++dealt;
  }
  return dealt;
}

bool LeaseTable::AllDone() const { return done_.NotIn(1) > leases_; }

std::size_t LeaseTable::done() const {
  std::size_t count = 0;
  for (const auto& [first, end] : done_.intervals()) count += end - first;
  return count;
}

std::vector<Lease> LeaseTable::HeldBy(const Client& client) const {
  std::vector<Lease> held;
  for (const auto& [lease, holder] : holders_) {
    if (holder == client) held.push_back(lease);
  }
  return held;
}

}  // namespace starling::parameter_server
