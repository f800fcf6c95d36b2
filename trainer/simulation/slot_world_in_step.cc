// SPDX-License-Identifier: Apache-2.0
// Bulk-synchronous clients: what they read and push belongs to the steps of their leases, not to
// clocks of their own.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/simulation/slot_world.h"

namespace starling::simulation {

// Unit u is lease u + 1.
ps::Clock SlotWorld::StepOf(std::size_t unit) const { return ps::StepOfLease(unit + 1, portions_); }

// A lease, now and then with those that follow it in its step.
void SlotWorld::TakePortions(const MemberId& id) {
  Client& client = clients_.at(id);
  client.portions.clear();
  const bool several = Chance(0.6);
  while (const std::optional<std::size_t> unit = TakeLease(client.machine->self())) {
    const std::vector<std::size_t>& taken = client.portions;
    const bool fits =
        taken.empty() || (taken.back() + 1 == *unit && taken.front() != 0 &&
                          StepOf(*unit) == StepOf(taken.front()) && !client.singly.contains(*unit));
    if (!fits) {
      leases_[*unit].holder.reset();  // another time
      break;
    }
    client.portions.push_back(*unit);
    if (!several || client.singly.contains(*unit)) break;
  }
}

void SlotWorld::BeginPortions(const MemberId& id) {
  Client& client = clients_.at(id);
  TakePortions(id);
  if (client.portions.empty()) return RestAWhile(id);
  if (client.portions.front() + 1 == ps::kFirstValues) return PushPortions(id);
  client.clock = StepOf(client.portions.front());
  StartReading(id);
}

void SlotWorld::PushPortions(const MemberId& id) {
  Client& client = clients_.at(id);
  const std::vector<std::size_t> units = std::exchange(client.portions, {});
  const std::vector<float> ones(units.size(), 1);
  ps::Update update;
  update.first = units.front();
  update.rows = units.size();
  update.values = ones;
  ps::Entry entry;
  entry.lease = units.front() + 1;
  entry.leases = units.size();
  if (entry.lease == ps::kFirstValues) {
    entry.kind = ps::EntryKind::kAssign;
  } else {
    entry.clock = StepOf(units.front());
  }
  entry.read = client.version;
  entry.update = ps::Encode(update);
  for (const std::size_t unit : units) {
    for (std::size_t slot = 0; slot < pushes_.size(); ++slot) client.missing[unit].insert(slot);
  }
  PushToAll(id, entry, units);
  BeginPortions(id);
}

// Its read waits for steps before; a lease of those that has become free is to be done first.
void SlotWorld::GiveUpForLower(const MemberId& id) {
  Client& client = clients_.at(id);
  if (client.reading.empty() || client.portions.empty()) return;
  const std::vector<std::size_t> taken = std::exchange(client.portions, {});
  for (const std::size_t unit : taken) leases_[unit].holder.reset();
  const std::optional<std::size_t> lowest = TakeLease(client.machine->self());
  if (lowest) leases_[*lowest].holder.reset();
  if (!lowest || *lowest >= taken.front()) {
    for (const std::size_t unit : taken) leases_[unit].holder = client.machine->self();
    client.portions = taken;
    return;
  }
  Trace(absl::StrCat(id.pod_uid, " leaves unit ", taken.front(), " for unit ", *lowest));
  client.reading.clear();
  BeginPortions(id);
}

}  // namespace starling::simulation
