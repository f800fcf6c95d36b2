// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/slot_job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/convert.h"
#include "trainer/simulation/whims.h"

namespace starling::simulation {
namespace {

namespace pb = v1alpha1;

constexpr std::size_t kUnleased = 40;  // units that nobody does again
constexpr std::int64_t kSpeed = 4;

// As many batches as the leases beside the first values make.
pb::TrainingJobSpec SpecOf(const SlotOptions& options) {
  pb::TrainingJobSpec spec;
  spec.mutable_stop()->set_steps(options.leases - 1);
  pb::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_replication(options.replication);
  server.mutable_consistency()->mutable_asynchronous();
  const auto* in_step = std::get_if<consistency::BulkSynchronous>(&options.model);
  if (in_step == nullptr) return spec;
  spec.mutable_stop()->set_steps((options.leases - 1) / in_step->portions);
  spec.mutable_dataset()->set_global_batch_size(in_step->portions);
  server.set_samples_per_push(1);
  server.mutable_consistency()->mutable_bulk_synchronous();
  return spec;
}

std::shared_ptr<const ps::TableSpec> TableOf(const SlotOptions& options) {
  auto table = std::make_shared<ps::TableSpec>();
  table->name = "units";
  table->kind = ps::TableKind::kDense;
  table->rows = static_cast<std::uint64_t>(options.leases) + kUnleased;
  table->combine = ps::Combine::kSum;
  table->rule = optimizer::MakeAdd();
  return table;
}

std::optional<std::int64_t> StalenessOf(const consistency::Options& model) {
  if (const auto* ssp = std::get_if<consistency::StaleSynchronous>(&model)) return ssp->staleness;
  if (std::holds_alternative<consistency::BulkSynchronous>(model)) return 0;
  return std::nullopt;
}

}  // namespace

Outcome Simulate(const SlotOptions& options) { return SlotJob(options).Run(); }

SlotJob::SlotJob(const SlotOptions& options)
    : options_(options),
      slots_(static_cast<std::size_t>(options.slots)),
      table_(TableOf(options)),
      staleness_(StalenessOf(options.model)),
      invariants_(slots_),
      world_(options, {.servers = options.servers, .speed = kSpeed, .refuses_old_data = false},
             invariants_),
      pushes_(slots_),
      disk_(slots_),
      restored_(slots_),
      loads_(slots_),
      next_unit_(static_cast<std::size_t>(options.leases)) {
  const auto* in_step = std::get_if<consistency::BulkSynchronous>(&options.model);
  if (in_step != nullptr) portions_ = in_step->portions;
}

std::unique_ptr<membership::Coordinator> SlotJob::NewCoordinator(
    membership::CoordinatorOptions common) {
  ps::SlotCoordinator::Options options;
  options.common = std::move(common);
  options.ahead_patience = absl::Milliseconds(300);
  options.balance.patience = absl::Milliseconds(10);
  options.tables = [this](const ps::Layout&) -> absl::StatusOr<ps::JobTables> {
    ps::JobTables tables;
    tables.parameter_slots = slots_;
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      tables.ids.push_back({static_cast<std::uint32_t>(slot), {0, table_->rows}});
    }
    return tables;
  };
  if (options_.whims) {
    options.placement = [this](std::shared_ptr<membership::Placement> planned) {
      return std::make_shared<Whims>(std::move(planned), world_);
    };
  }
  return std::make_unique<ps::SlotCoordinator>(std::move(options), SpecOf(options_));
}

void SlotJob::OnStarted(Process& process) {
  membership::Session::Options options;
  options.id = process.id;
  options.rules = options_.slot_rules.sync;
  As(process).session = std::make_unique<membership::Session>(std::move(options));
  process.role == Role::kServer ? StartServer(process.id) : StartClient(process.id);
}

void SlotJob::StartServer(const MemberId& id) {
  Server& server = servers_[id];
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    ps::ChainServer::Options options;
    options.id = id;
    options.slot = SlotOfAll();
    options.observer = [this, id, slot](const ps::Entry& entry, ps::Outcome outcome) {
      const ps::ChainServer& machine = *servers_.at(id).slots[slot];
      invariants_.OnAppended(slot, machine.installed()->group.epoch, entry, outcome);
      if (portions_ > 0) invariants_.OnAppendedInStep(slot, *machine.state(), entry, outcome);
      if (outcome == ps::Outcome::kSkipped) world_.Count("skipped");
      if (entry.parts.size() > 1) world_.Count("aggregates");
    };
    server.slots.push_back(std::make_unique<ps::ChainServer>(std::move(options)));
  }
  server.seen.resize(slots_);
  server.based.resize(slots_);
  server.loading.resize(slots_);
}

void SlotJob::OnDirective(Process& process, const membership::Directive& directive) {
  Member& member = As(process);
  if (member.session->OnDirective(directive) == membership::Session::Heard::kStale) return;
  if (!member.session->exit().empty()) return world_.Exit(process, member.session->exit());
  pb::ParameterServerDirective part;
  if (!part.ParseFromString(directive.parameter_server)) return;
  if (directive.view && member.session->MayEnter(*directive.view)) {
    member.session->Enter(*directive.view);
    Install(member, *directive.view);
  }
  const MemberId& id = process.id;
  if (!process.alive) return;
  if (process.role == Role::kServer) {
    SaveIfAsked(id, directive.checkpoint_turn);
    for (const std::int64_t slot : part.fetch_ahead()) {
      const auto at = static_cast<std::size_t>(slot);
      SendFrom(id, at, servers_.at(id).slots[at]->Prefetch());
    }
  } else if (directive.view && member.barred == directive.view->number) {
    HearLeases(id, {part.leases().begin(), part.leases().end()});
  }
}

void SlotJob::Install(Member& member, const membership::View& view) {
  const MemberId& id = member.id;
  world_.Hit(Point::kSync, member);
  if (!member.alive) return;
  member.barred = view.number;
  member.opened.clear();
  if (member.role == Role::kWorker) {
    EnterAsClient(id, view);
  } else {
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      std::optional<membership::CheckpointOffer> offer;
      if (!disk_[slot].empty()) offer = {disk_[slot].rbegin()->first, {}};
      SendFrom(id, slot, servers_.at(id).slots[slot]->OnView(ps::SlotViewOf(view, slot), offer));
      LoadIfWanted(id, slot);
    }
  }
  world_.Open(member, view);
}

membership::Report SlotJob::ReportOf(Process& process) {
  membership::Report report = As(process).session->MakeReport();
  pb::ParameterServerReport said;
  said.mutable_layout()->set_parameters(1);
  said.mutable_layout()->set_samples(1);
  if (process.role == Role::kWorker) {
    const Client& client = clients_.at(process.id);
    for (const ps::Lease lease : client.done) said.add_done(lease);
    for (const ps::Lease lease : client.listed) {
      const auto returned = client.returned.find(lease);
      const bool held = returned == client.returned.end() || world_.now() >= returned->second;
      if (held && !client.done.contains(lease)) said.add_held(lease);
    }
    report.parameter_server = said.SerializeAsString();
    return report;
  }
  const Server& server = servers_.at(process.id);
  report.checkpoint_turn = server.turn;
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    const ps::ChainServer& machine = *server.slots[slot];
    const bool here = report.installed && machine.fence() == report.installed->number;
    if (here && machine.open()) {
      pb::SlotLedger& ledger = *said.add_ledgers();
      ledger.set_slot(static_cast<std::int64_t>(slot));
      ps::Put(machine.state()->ledger(), ledger);
    }
    ps::Put(ps::SlotReport{machine.state_id(), machine.cached(),
                           here && machine.phase() == ps::ServerPhase::kLost, loads_[slot]},
            *said.add_slots());
    if (here && machine.phase() == ps::ServerPhase::kAborted) said.set_broken(true);
  }
  report.parameter_server = said.SerializeAsString();
  return report;
}

void SlotJob::OnBroken(Process& process, ViewNumber view, const MemberId& /*peer*/) {
  if (process.role != Role::kServer) return;
  for (const auto& machine : servers_.at(process.id).slots) machine->OnBroken(view);
}

// Inside a chain links keep their order until they break; between clients and servers a retry may
// overtake, be lost, or arrive twice.
void SlotJob::Post(const MemberId& from, const MemberId& to, std::size_t slot,
                   const ps::Message& message) {
  const ViewNumber view = ps::ViewOf(message);
  const Handler receive = [this, slot, message](Process& process) {
    Receive(process, slot, message);
  };
  if (servers_.contains(from) && servers_.contains(to)) {
    world_.Send(from, to, view, receive);
    return;
  }
  if (world_.Cut(from, to) || world_.Disturbs(0.03)) return;
  const int copies = world_.Disturbs(0.05) ? 2 : 1;
  const Micros delay =
      world_.Chance(0.1) ? world_.Random(1'000, 100'000) : world_.Random(50, 2'000);
  for (int i = 0; i < copies; ++i) {
    const Micros more = i == 0 ? 0 : world_.Random(0, 300'000);
    world_.ToProcess(to, delay + more, receive);
  }
}

// The machine itself refuses what is of an older view: that is under test.
void SlotJob::Receive(Process& process, std::size_t slot, const ps::Message& message) {
  const ViewNumber view = ps::ViewOf(message);
  const MemberId& id = process.id;
  if (view > process.barred) {
    process.parked[view].emplace_back([this, id, slot, message] {
      if (Process* living = world_.Find(id)) Receive(*living, slot, message);
    });
  } else if (process.role == Role::kServer) {
    world_.Hit(Point::kExchange, process);
    if (!process.alive) return;
    SendFrom(id, slot, servers_.at(id).slots[slot]->OnMessage(message));
    LoadIfWanted(id, slot);
  } else {
    SendFrom(id, clients_.at(id).machine->OnMessage(slot, message));
    OnClientEvents(id);
  }
}

void SlotJob::SendFrom(const MemberId& server, std::size_t slot, const ps::Sends& sends) {
  for (const ps::Send& send : sends) {
    Process* from = world_.Find(server);
    if (from == nullptr) return;  // it was killed in the middle
    if (std::holds_alternative<ps::Singly>(send.message)) world_.Count("singly");
    if (const auto* copy = std::get_if<ps::CopyReply>(&send.message)) {
      world_.Count("copies");
      if (!copy->snapshot) world_.Count("short copies");
      world_.Hit(Point::kCopy, *from);
      if (!from->alive) return;
    }
    Post(server, send.to, slot, send.message);
  }
}

void SlotJob::LoadIfWanted(const MemberId& id, std::size_t slot) {
  Server& server = servers_.at(id);
  const ps::ChainServer& machine = *server.slots[slot];
  const std::optional<StateId> wanted = machine.WantsCheckpoint();
  const ViewNumber view = machine.fence();
  if (!wanted || server.loading[slot] == view) return;
  server.loading[slot] = view;
  world_.Count("restores");
  const auto loaded = [this, id, slot, view, bytes = disk_[slot].at(*wanted)](Process&) {
    SendFrom(id, slot, servers_.at(id).slots[slot]->OnLoaded(view, bytes));
  };
  // The machine may have gone on to another view meanwhile.
  world_.ToProcess(
      id, world_.Chance(0.2) ? world_.Random(1'000, 100'000) : world_.Random(50, 3'000), loaded);
  if (world_.Disturbs(0.1)) world_.ToProcess(id, world_.Random(20'000, 300'000), loaded);
}

// All that it holds, once all of it is whole.
void SlotJob::SaveIfAsked(const MemberId& id, std::int64_t turn) {
  Server& server = servers_.at(id);
  if (turn <= server.turn) return;
  for (const auto& machine : server.slots) {
    const ps::ServerPhase phase = machine->phase();
    if (phase != ps::ServerPhase::kRun && phase != ps::ServerPhase::kOut) return;
  }
  server.turn = turn;
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    const ps::ChainServer& machine = *server.slots[slot];
    if (machine.phase() == ps::ServerPhase::kRun) {
      disk_[slot][*machine.state_id()] = machine.state()->Save();
    }
  }
}

// Any replica, at any moment: every slot by itself.
void SlotJob::Snapshot() {
  for (const Process* process : world_.Living(Role::kServer)) {
    if (process->paused || !world_.Chance(0.5)) continue;
    const Server& server = servers_.at(process->id);
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      const ps::ChainServer& machine = *server.slots[slot];
      if (machine.phase() != ps::ServerPhase::kRun || !world_.Chance(0.5)) continue;
      disk_[slot][*machine.state_id()] = machine.state()->Save();
    }
  }
}

void SlotJob::OnTick() {
  if (world_.Chance(0.1)) Snapshot();
  for (std::int64_t& load : loads_) {
    if (!options_.loads || (load != 0 && !world_.Chance(0.02))) continue;
    load = world_.Chance(0.5) ? world_.Random(1, 2'000'000) : world_.Random(2'000'000, 50'000'000);
  }
}

// A view restores a slot rightly if some view was before it of which all copies are gone.
void SlotJob::OnPublished(const membership::View& view) {
  const auto ended = [this](const MemberId& id) { return world_.Ended(id); };
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    const membership::ReplicaGroup& chain = view.groups[slot];
    const bool all_copies_gone = std::ranges::any_of(views_, [&](const auto& past) {
      return std::ranges::all_of(past.second.groups[slot].members, ended);
    });
    if (chain.restore && all_copies_gone) restored_[slot].insert(view.number);
    if (views_.empty() || !chain.by_load) continue;
    const std::vector<MemberId>& before = views_.rbegin()->second.groups[slot].members;
    const bool moves = chain.members != before && before.size() <= chain.members.size();
    if (moves) world_.Count("moves");
  }
  views_.emplace(view.number, view);
}

void SlotJob::Check() {
  for (const Process* process : world_.Living(Role::kServer)) {
    Server& server = servers_.at(process->id);
    for (std::size_t slot = 0; slot < slots_; ++slot) {
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

const ps::SlotState* SlotJob::NewestState(std::size_t slot) {
  const membership::View* view = world_.Newest().view();
  if (view == nullptr) return nullptr;
  const MemberId& tail = view->groups[slot].members.back();
  const ps::ChainServer& machine = *servers_.at(tail).slots[slot];
  const bool serves =
      world_.Find(tail) != nullptr && machine.fence() == view->number && machine.open();
  return serves ? machine.state() : nullptr;
}

bool SlotJob::Finished(const membership::Coordinator& coordinator) {
  if (!world_.Late() || !static_cast<const ps::SlotCoordinator&>(coordinator).AllDone()) {
    return false;
  }
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    if (NewestState(slot) == nullptr) return false;
  }
  return std::ranges::all_of(world_.Living(Role::kWorker), [this](const Process* process) {
    return clients_.at(process->id).units.empty();
  });
}

void SlotJob::OnFinished() {
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    invariants_.OnEnd(slot, SlotInvariants::ContentOf(*NewestState(slot)),
                      static_cast<std::size_t>(options_.leases));
  }
}

std::string SlotJob::Standing(const Process& process) {
  if (process.role == Role::kServer) {
    std::string standing;
    for (const auto& machine : servers_.at(process.id).slots) {
      absl::StrAppend(&standing, ":", static_cast<int>(machine->phase()),
                      machine->open() ? "o" : "");
    }
    return standing;
  }
  const Client& client = clients_.at(process.id);
  return absl::StrCat("clock ", client.clock, " units ", client.units.size(), " reading ",
                      client.reading.size(), client.machine->ready() ? "" : " not ready");
}

}  // namespace starling::simulation
