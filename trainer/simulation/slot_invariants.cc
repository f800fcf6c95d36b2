// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/slot_invariants.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/simulation/content.h"

namespace starling::simulation {

using parameter_server::SlotState;
using parameter_server::ViewNumber;

std::vector<float> SlotInvariants::ContentOf(const SlotState& state) {
  const absl::StatusOr<std::string> bytes = state.Read({0, state.range().size(), {}});
  std::vector<float> values(bytes.ok() ? bytes->size() / sizeof(float) : 0);
  if (!values.empty()) std::memcpy(values.data(), bytes->data(), bytes->size());
  for (const auto& [index, update] : state.held()) {
    const parameter_server::Update& held = update.update;
    for (std::size_t i = 0; i < held.values.size(); ++i) values[held.first + i] += held.values[i];
  }
  return values;
}

void SlotInvariants::OnState(std::size_t slot, const parameter_server::StateId& id,
                             const SlotState& state) {
  std::uint64_t hash = 1;
  for (const char c : state.Save()) hash = Mix(hash, static_cast<std::uint64_t>(c));
  const auto [known, added] = slots_[slot].states.emplace(id, hash);
  if (known->second != hash) {
    Fail(absl::StrCat("1: two contents of slot ", slot, " are state ", id.view, "/", id.step));
  }
  const std::vector<float> values = ContentOf(state);
  for (std::size_t unit = 0; unit < values.size(); ++unit) {
    if (values[unit] > 1)
      Fail(absl::StrCat("6: slot ", slot, " has applied unit ", unit, " twice"));
  }
}

void SlotInvariants::OnBase(std::size_t slot, ViewNumber view, const SlotState& state,
                            bool restored) {
  const std::vector<float> values = ContentOf(state);
  auto& acknowledged = slots_[slot].acknowledged;
  for (auto known = acknowledged.begin(); known != acknowledged.end();) {
    const bool lost = known->second <= view && values[known->first] != 1;
    if (lost && !restored) {
      Fail(absl::StrCat("6: slot ", slot, " starts view ", view, " without unit ", known->first,
                        ", which was acknowledged in view ", known->second));
    }
    // A restore gives up what is in no snapshot, and what was promised of it.
    known = lost ? acknowledged.erase(known) : std::next(known);
  }
  if (!restored) return;
  slots_[slot].floors.clear();
  slots_[slot].restored = std::max(slots_[slot].restored, view);
}

void SlotInvariants::OnAcknowledged(std::size_t slot, ViewNumber view, std::size_t unit) {
  if (view >= slots_[slot].restored) slots_[slot].acknowledged.emplace(unit, view);
}

void SlotInvariants::OnRead(std::size_t slot, const parameter_server::SlotView& view,
                            parameter_server::Clock floor, const std::vector<float>& values,
                            const std::vector<UnitPush>& pushes) {
  for (const UnitPush& push : pushes) {
    const bool there =
        std::find(view.clients.begin(), view.clients.end(), push.client) != view.clients.end();
    if (there && push.clock < floor && values[push.unit] < 1) {
      Fail(absl::StrCat("7: a read of slot ", slot, " lacks unit ", push.unit, " of clock ",
                        push.clock, ", below ", floor));
    }
  }
  if (view.group.epoch < slots_[slot].restored) return;
  parameter_server::Clock& known = slots_[slot].floors[view.group.epoch];
  known = std::max(known, floor);
}

void SlotInvariants::OnReadInStep(std::size_t slot, std::int64_t portions,
                                  parameter_server::Clock step, std::size_t leases,
                                  const std::vector<float>& values) {
  for (std::size_t unit = 1; unit < leases; ++unit) {
    const auto of = static_cast<parameter_server::Clock>(unit - 1) / portions;
    const auto first = static_cast<std::size_t>(of * portions) + 1;
    if (values[unit] != values[first]) {
      Fail(absl::StrCat("7: a read of slot ", slot, " holds a part of step ", of));
    }
    if (of < step && values[unit] != 1) {
      Fail(absl::StrCat("7: a read of slot ", slot, " for step ", step, " lacks unit ", unit,
                        " of step ", of));
    }
  }
}

void SlotInvariants::OnAppended(std::size_t slot, ViewNumber view,
                                const parameter_server::Entry& entry,
                                parameter_server::Outcome outcome) {
  using parameter_server::EntryKind;
  if (outcome != parameter_server::Outcome::kTaken) return;
  std::vector<parameter_server::Clock> clocks;
  if (entry.kind == EntryKind::kPush) clocks.push_back(entry.clock);
  for (const parameter_server::Constituent& part : entry.parts) clocks.push_back(part.clock);
  for (const auto& [in, floor] : slots_[slot].floors) {
    for (const parameter_server::Clock clock : clocks) {
      if (in > view || clock >= floor) continue;
      Fail(absl::StrCat("7: slot ", slot, " takes an update of clock ", clock,
                        " after a read that was promised all below ", floor));
    }
  }
}

void SlotInvariants::OnAppendedInStep(std::size_t slot, const SlotState& state,
                                      const parameter_server::Entry& entry,
                                      parameter_server::Outcome outcome) {
  using parameter_server::EntryKind;
  const bool push = entry.kind == EntryKind::kPush || entry.kind == EntryKind::kAggregate;
  if (!push || outcome != parameter_server::Outcome::kTaken) return;
  if (state.ledger().Has(parameter_server::kFirstValues)) return;
  Fail(absl::StrCat("9: slot ", slot, " takes a push of step ",
                    entry.parts.empty() ? entry.clock : entry.parts.front().clock,
                    " before it has the first values"));
}

void SlotInvariants::OnEnd(std::size_t slot, const std::vector<float>& values, std::size_t leases) {
  for (std::size_t unit = 0; unit < values.size(); ++unit) {
    const bool leased = unit < leases;
    const bool acknowledged = slots_[slot].acknowledged.contains(unit);
    if (((leased || acknowledged) && values[unit] != 1) || values[unit] > 1) {
      Fail(absl::StrCat("6: in the end slot ", slot, " has unit ", unit, " ", values[unit],
                        " times"));
    }
  }
}

}  // namespace starling::simulation
