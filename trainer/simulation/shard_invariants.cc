// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/shard_invariants.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/simulation/content.h"

namespace starling::simulation {

using parameter_server::ShardState;
using parameter_server::ViewNumber;

std::vector<float> ShardInvariants::ContentOf(const ShardState& state) {
  const absl::StatusOr<std::string> bytes = state.Read({0, state.range().size(), {}});
  std::vector<float> values(bytes.ok() ? bytes->size() / sizeof(float) : 0);
  if (!values.empty()) std::memcpy(values.data(), bytes->data(), bytes->size());
  for (const auto& [index, update] : state.held()) {
    const parameter_server::Update& held = update.update;
    for (std::size_t i = 0; i < held.values.size(); ++i) values[held.first + i] += held.values[i];
  }
  return values;
}

void ShardInvariants::OnState(std::size_t shard, const parameter_server::StateId& id,
                              const ShardState& state) {
  std::uint64_t hash = 1;
  for (const char c : state.Save()) hash = Mix(hash, static_cast<std::uint64_t>(c));
  const auto [known, added] = shards_[shard].states.emplace(id, hash);
  if (known->second != hash) {
    Fail(absl::StrCat("1: two contents of shard ", shard, " are state ", id.view, "/", id.step));
  }
  const std::vector<float> values = ContentOf(state);
  for (std::size_t unit = 0; unit < values.size(); ++unit) {
    if (values[unit] > 1)
      Fail(absl::StrCat("6: shard ", shard, " has applied unit ", unit, " twice"));
  }
}

void ShardInvariants::OnBase(std::size_t shard, ViewNumber view, const ShardState& state,
                             bool restored) {
  const std::vector<float> values = ContentOf(state);
  auto& acknowledged = shards_[shard].acknowledged;
  for (auto known = acknowledged.begin(); known != acknowledged.end();) {
    const bool lost = known->second <= view && values[known->first] != 1;
    if (lost && !restored) {
      Fail(absl::StrCat("6: shard ", shard, " starts view ", view, " without unit ", known->first,
                        ", which was acknowledged in view ", known->second));
    }
    // A restore gives up what is in no snapshot, and what was promised of it.
    known = lost ? acknowledged.erase(known) : std::next(known);
  }
  if (!restored) return;
  shards_[shard].floors.clear();
  shards_[shard].restored = std::max(shards_[shard].restored, view);
}

void ShardInvariants::OnAcknowledged(std::size_t shard, ViewNumber view, std::size_t unit) {
  if (view >= shards_[shard].restored) shards_[shard].acknowledged.emplace(unit, view);
}

void ShardInvariants::OnRead(std::size_t shard, const parameter_server::ShardView& view,
                             parameter_server::Clock floor, const std::vector<float>& values,
                             const std::vector<UnitPush>& pushes) {
  for (const UnitPush& push : pushes) {
    const bool there =
        std::find(view.clients.begin(), view.clients.end(), push.client) != view.clients.end();
    if (there && push.clock < floor && values[push.unit] < 1) {
      Fail(absl::StrCat("7: a read of shard ", shard, " lacks unit ", push.unit, " of clock ",
                        push.clock, ", below ", floor));
    }
  }
  if (view.group.epoch < shards_[shard].restored) return;
  parameter_server::Clock& known = shards_[shard].floors[view.group.epoch];
  known = std::max(known, floor);
}

void ShardInvariants::OnReadInStep(std::size_t shard, std::int64_t portions,
                                   parameter_server::Clock step, std::size_t leases,
                                   const std::vector<float>& values) {
  for (std::size_t unit = 1; unit < leases; ++unit) {
    const auto of = static_cast<parameter_server::Clock>(unit - 1) / portions;
    const auto first = static_cast<std::size_t>(of * portions) + 1;
    if (values[unit] != values[first]) {
      Fail(absl::StrCat("7: a read of shard ", shard, " holds a part of step ", of));
    }
    if (of < step && values[unit] != 1) {
      Fail(absl::StrCat("7: a read of shard ", shard, " for step ", step, " lacks unit ", unit,
                        " of step ", of));
    }
  }
}

void ShardInvariants::OnReadForStep(std::size_t shard, std::int64_t portions,
                                    parameter_server::Clock step, bool several, std::size_t leases,
                                    parameter_server::Version version,
                                    const std::vector<float>& values) {
  OnReadInStep(shard, portions, step, leases, values);
  parameter_server::Version whole = 0;
  for (std::size_t unit = 1; unit < leases; unit += static_cast<std::size_t>(portions)) {
    whole += values[unit] == 1 ? 1 : 0;
  }
  if (whole != version) {
    Fail(absl::StrCat("7: a read of shard ", shard, " has ", whole, " steps and says ", version));
  }
  if (whole > step + 1 && !several) {
    Fail(absl::StrCat("7: shard ", shard, " has ", whole, " steps while step ", step + 1,
                      " is made"));
  }
}

void ShardInvariants::OnStepApplied(std::size_t shard, ViewNumber view, std::int64_t portions,
                                    parameter_server::Clock step) {
  if (view < shards_[shard].restored) return;
  for (std::int64_t portion = 0; portion < portions; ++portion) {
    const parameter_server::Lease lease = parameter_server::LeaseOf(step, portion, portions);
    if (shards_[shard].acknowledged.contains(static_cast<std::size_t>(lease) - 1)) continue;
    Fail(absl::StrCat("9: step ", step + 1, " is applied, and shard ", shard, " lacks portion ",
                      portion, " of it"));
  }
}

void ShardInvariants::OnAppended(std::size_t shard, ViewNumber view,
                                 const parameter_server::Entry& entry,
                                 parameter_server::Outcome outcome) {
  using parameter_server::EntryKind;
  if (outcome != parameter_server::Outcome::kTaken) return;
  std::vector<parameter_server::Clock> clocks;
  if (entry.kind == EntryKind::kPush) clocks.push_back(entry.clock);
  for (const parameter_server::Constituent& part : entry.parts) clocks.push_back(part.clock);
  for (const auto& [in, floor] : shards_[shard].floors) {
    for (const parameter_server::Clock clock : clocks) {
      if (in > view || clock >= floor) continue;
      Fail(absl::StrCat("7: shard ", shard, " takes an update of clock ", clock,
                        " after a read that was promised all below ", floor));
    }
  }
}

void ShardInvariants::OnAppendedInStep(std::size_t shard, const ShardState& state,
                                       const parameter_server::Entry& entry,
                                       parameter_server::Outcome outcome) {
  using parameter_server::EntryKind;
  const bool push = entry.kind == EntryKind::kPush || entry.kind == EntryKind::kAggregate;
  if (!push || outcome != parameter_server::Outcome::kTaken) return;
  if (state.ledger().Has(parameter_server::kFirstValues)) return;
  Fail(absl::StrCat("9: shard ", shard, " takes a push of step ",
                    entry.parts.empty() ? entry.clock : entry.parts.front().clock,
                    " before it has the first values"));
}

void ShardInvariants::OnEnd(std::size_t shard, const std::vector<float>& values,
                            std::size_t leases) {
  for (std::size_t unit = 0; unit < values.size(); ++unit) {
    const bool leased = unit < leases;
    const bool acknowledged = shards_[shard].acknowledged.contains(unit);
    if (((leased || acknowledged) && values[unit] != 1) || values[unit] > 1) {
      Fail(absl::StrCat("6: in the end shard ", shard, " has unit ", unit, " ", values[unit],
                        " times"));
    }
  }
}

}  // namespace starling::simulation
