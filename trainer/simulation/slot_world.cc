// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/slot_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/optimizer/server_rules.h"

namespace starling::simulation {
namespace {

constexpr std::int64_t kPatience = 60'000'000;  // after the faults, simulated
constexpr std::int64_t kMostEvents = 400'000;
constexpr std::size_t kUnleased = 40;  // units that nobody does again

std::optional<std::int64_t> StalenessOf(const consistency::Options& model) {
  if (const auto* ssp = std::get_if<consistency::StaleSynchronous>(&model)) return ssp->staleness;
  if (std::holds_alternative<consistency::BulkSynchronous>(model)) return 0;
  return std::nullopt;
}

}  // namespace

SlotOutcome SimulateSlots(const SlotOptions& options) { return SlotWorld(options).Run(); }

SlotWorld::SlotWorld(const SlotOptions& options)
    : options_(options),
      random_(options.seed),
      staleness_(StalenessOf(options.model)),
      invariants_(static_cast<std::size_t>(options.slots)),
      pushes_(static_cast<std::size_t>(options.slots)),
      disk_(static_cast<std::size_t>(options.slots)),
      restored_(static_cast<std::size_t>(options.slots)),
      leases_(static_cast<std::size_t>(options.leases)),
      next_unit_(static_cast<std::size_t>(options.leases)) {
  auto table = std::make_shared<ps::TableSpec>();
  table->name = "units";
  table->kind = ps::TableKind::kDense;
  table->rows = static_cast<std::uint64_t>(options.leases) + kUnleased;
  table->combine = ps::Combine::kSum;
  table->rule = optimizer::MakeAdd();
  table_ = std::move(table);
  const auto* in_step = std::get_if<consistency::BulkSynchronous>(&options.model);
  if (in_step != nullptr) portions_ = in_step->portions;
}

std::int64_t SlotWorld::Random(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
}

bool SlotWorld::Chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1.0p-53 < probability;
}

void SlotWorld::At(Micros delay, Event event) {
  queue_.emplace(now_ + std::max<Micros>(0, delay), sequence_++, std::move(event));
}

void SlotWorld::Trace(const std::string& line) {
  if (options_.trace) outcome_.trace.push_back(absl::StrCat(now_ / 1000, "ms ", line));
}

// To a process that may be paused by then, or dead.
void SlotWorld::Deliver(const MemberId& to, Micros delay, std::function<void(Process&)> event) {
  At(delay, [this, to, event = std::move(event)] {
    const auto found = processes_.find(to);
    if (found == processes_.end() || !found->second.alive) return;
    Process& process = found->second;
    if (process.paused) {
      process.inbox.emplace_back([this, to, event] { event(processes_.at(to)); });
    } else {
      event(process);
    }
  });
}

// Inside a chain links keep their order until they break; between clients and servers a retry may
// overtake, be lost, or arrive twice.
void SlotWorld::Post(const MemberId& from, const MemberId& to, std::size_t slot,
                     const ps::Message& message) {
  const ViewNumber view = ps::ViewOf(message);
  const bool chain = servers_.contains(from) && servers_.contains(to);
  Micros delay = Chance(0.1) ? Random(1'000, 60'000) : Random(50, 2'000);
  int copies = 1;
  if (chain) {
    if (cut_.contains({from, to, view})) {
      NoticeBreak(from, view);
      return;
    }
    Micros& last = links_[{from, to, view}];
    last = std::max(last, now_ + delay);
    delay = last - now_;
    // Once more, when the receiver has gone on to another view.
    if (!Late() && Chance(0.02)) {
      Deliver(to, Random(5'000, 300'000), [this, view, slot, message](Process& process) {
        if (process.view > view) Receive(process, slot, message);
      });
    }
  } else if (!Late()) {
    if (Chance(0.03)) return;
    if (Chance(0.05)) copies = 2;
  }
  for (int i = 0; i < copies; ++i) {
    const Micros more = i == 0 ? 0 : Random(0, 80'000);
    Deliver(to, delay + more, [this, from, to, view, slot, message, chain](Process& process) {
      if (chain && cut_.contains({from, to, view})) return;
      Receive(process, slot, message);
    });
  }
}

void SlotWorld::Receive(Process& process, std::size_t slot, const ps::Message& message) {
  const ViewNumber view = ps::ViewOf(message);
  if (view > process.view) {
    process.parked[view].emplace_back(
        [this, id = process.id, slot, message] { Receive(processes_.at(id), slot, message); });
    return;
  }
  if (process.server) {
    // The machine itself refuses what is of an older view: that is under test.
    ps::ChainServer& machine = *servers_.at(process.id).slots[slot];
    SendFrom(process.id, slot, machine.OnMessage(message));
    LoadIfWanted(process.id, slot);
  } else {
    SendFrom(process.id, clients_.at(process.id).machine->OnMessage(slot, message));
    OnClientEvents(process.id);
  }
}

void SlotWorld::Check() {
  for (auto& [id, server] : servers_) {
    if (!processes_.at(id).alive) continue;
    for (std::size_t slot = 0; slot < server.slots.size(); ++slot) {
      const ps::ChainServer& machine = *server.slots[slot];
      const std::optional<StateId> state = machine.state_id();
      if (!state || *state == server.seen[slot]) continue;
      server.seen[slot] = *state;
      if (server.based[slot] != state->view) {
        server.based[slot] = state->view;
        invariants_.OnBase(slot, state->view, *machine.state(),
                           restored_[slot].contains(state->view));
      }
      invariants_.OnState(slot, *state, *machine.state());
    }
  }
}

bool SlotWorld::Finished() {
  const View* current = NewestView();
  if (!Late() || current == nullptr) return false;
  if (!AllLeasesDone()) return false;
  for (std::size_t slot = 0; slot < current->slots.size(); ++slot) {
    if (NewestState(slot) == nullptr) return false;
  }
  return std::all_of(clients_.begin(), clients_.end(), [&](const auto& client) {
    return !processes_.at(client.first).alive || client.second.units.empty();
  });
}

std::string SlotWorld::WhyNot() {
  std::string why = "the work was not done after the faults had stopped:";
  for (const auto& [id, server] : servers_) {
    if (!processes_.at(id).alive) continue;
    absl::StrAppend(&why, " ", id.pod_uid, "/", id.start);
    for (const auto& machine : server.slots) {
      absl::StrAppend(&why, ":", static_cast<int>(machine->phase()), machine->open() ? "o" : "");
    }
  }
  for (const auto& [id, client] : clients_) {
    if (!processes_.at(id).alive) continue;
    absl::StrAppend(&why, " ", id.pod_uid, "/", id.start, " clock ", client.clock, " units ",
                    client.units.size(), " reading ", client.reading.size(),
                    client.machine->ready() ? "" : " not ready");
  }
  absl::StrAppend(&why, AllLeasesDone() ? "" : " leases open");
  return absl::StrCat(
      why, leaders_.empty() ? "" : Newest()->MakeSummary(absl::FromUnixMicros(now_)).waiting);
}

SlotOutcome SlotWorld::Run() {
  for (int i = 0; i < options_.servers; ++i) {
    AddPod(absl::StrCat("server-", i), i, /*server=*/true);
    StartServer(absl::StrCat("server-", i), 0);
  }
  for (int i = 0; i < options_.clients; ++i) {
    AddPod(absl::StrCat("worker-", i), i, /*server=*/false);
    StartClient(absl::StrCat("worker-", i), 0);
  }
  PlanFaults();
  if (options_.planned) {
    TakeOver();
    PlanTick();
  } else {
    CoordinatorTick();
  }
  while (!queue_.empty() && invariants_.violation().empty()) {
    auto [time, sequence, event] = queue_.top();
    queue_.pop();
    if (time > faults_end_ + kPatience || outcome_.events > kMostEvents) break;
    now_ = time;
    ++outcome_.events;
    event();
    Check();
    if (Finished()) {
      outcome_.finished = true;
      break;
    }
  }
  if (outcome_.finished) {
    for (std::size_t slot = 0; slot < pushes_.size(); ++slot) {
      invariants_.OnEnd(slot, SlotInvariants::ContentOf(*NewestState(slot)), leases_.size());
    }
  } else if (invariants_.violation().empty()) {
    invariants_.OnStuck(WhyNot());
  }
  outcome_.violation = invariants_.violation();
  outcome_.seconds = static_cast<double>(now_) / 1e6;
  return outcome_;
}

}  // namespace starling::simulation
