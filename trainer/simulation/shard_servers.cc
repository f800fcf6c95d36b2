// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/shard_servers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/convert.h"
#include "trainer/simulation/whims.h"

namespace starling::simulation {

namespace pb = v1alpha1;

std::shared_ptr<const ps::TableSpec> TableOfUnits(std::size_t rows) {
  auto table = std::make_shared<ps::TableSpec>();
  table->name = "units";
  table->kind = ps::TableKind::kDense;
  table->rows = rows;
  table->combine = ps::Combine::kSum;
  table->rule = optimizer::MakeAdd();
  return table;
}

pb::ParameterServerReport ReportWithLayout() {
  pb::ParameterServerReport said;
  said.mutable_layout()->set_parameters(1);
  said.mutable_layout()->set_samples(1);
  return said;
}

bool Obeys(World& world, Process& process, membership::Session& session,
           const membership::Directive& directive) {
  if (session.OnDirective(directive) == membership::Session::Heard::kStale) return false;
  if (!session.exit().empty()) world.Exit(process, session.exit());
  return process.alive;
}

ShardServers::ShardServers(Options options, World& world, ShardInvariants& invariants,
                           ToClient to_client)
    : options_(std::move(options)),
      world_(world),
      invariants_(invariants),
      to_client_(std::move(to_client)),
      disk_(options_.shards),
      restored_(options_.shards),
      loads_(options_.shards) {}

ps::ShardCoordinator::Options ShardServers::CoordinatorOf(
    membership::CoordinatorOptions common) const {
  ps::ShardCoordinator::Options options;
  options.common = std::move(common);
  options.ahead_patience = absl::Milliseconds(300);
  options.balance.patience = absl::Milliseconds(10);
  options.tables = [this](const ps::Layout&) -> absl::StatusOr<ps::JobTables> {
    ps::JobTables tables;
    tables.parameter_shards = options_.shards;
    for (std::size_t shard = 0; shard < options_.shards; ++shard) {
      tables.ids.push_back({static_cast<std::uint32_t>(shard), options_.shard.range});
    }
    return tables;
  };
  if (options_.whims) {
    options.placement = [this](std::shared_ptr<membership::Placement> planned) {
      return std::make_shared<Whims>(std::move(planned), world_);
    };
  }
  return options;
}

void ShardServers::OnStarted(const MemberId& id) {
  Server& server = servers_[id];
  membership::Session::Options session;
  session.id = id;
  session.rules = options_.shard.rules.sync;
  server.session = std::make_unique<membership::Session>(std::move(session));
  for (std::size_t shard = 0; shard < options_.shards; ++shard) {
    ps::ChainServer::Options options;
    options.id = id;
    options.shard = options_.shard;
    options.observer = [this, id, shard](const ps::Entry& entry, ps::Outcome outcome) {
      const ps::ChainServer& machine = *servers_.at(id).shards[shard];
      invariants_.OnAppended(shard, machine.installed()->group.epoch, entry, outcome);
      if (options_.portions > 0) {
        invariants_.OnAppendedInStep(shard, *machine.state(), entry, outcome);
      }
      if (outcome == ps::Outcome::kSkipped) world_.Count("skipped");
      if (entry.parts.size() > 1) world_.Count("aggregates");
    };
    server.shards.push_back(std::make_unique<ps::ChainServer>(std::move(options)));
  }
  server.seen.resize(options_.shards);
  server.based.resize(options_.shards);
  server.loading.resize(options_.shards);
}

void ShardServers::OnDirective(Process& process, const membership::Directive& directive) {
  const MemberId& id = process.id;
  membership::Session& session = *servers_.at(id).session;
  if (!Obeys(world_, process, session, directive)) return;
  pb::ParameterServerDirective part;
  if (!part.ParseFromString(directive.parameter_server)) return;
  if (directive.view && session.MayEnter(*directive.view)) {
    session.Enter(*directive.view);
    Install(process, *directive.view);
  }
  if (!process.alive) return;
  SaveIfAsked(id, directive.checkpoint_turn);
  for (const std::int64_t shard : part.fetch_ahead()) {
    const auto at = static_cast<std::size_t>(shard);
    SendFrom(id, at, servers_.at(id).shards[at]->Prefetch());
  }
}

void ShardServers::Install(Process& process, const membership::View& view) {
  world_.Hit(Point::kSync, process);
  if (!process.alive) return;
  process.barred = view.number;
  process.opened.clear();
  for (std::size_t shard = 0; shard < options_.shards; ++shard) {
    std::optional<membership::CheckpointOffer> offer;
    if (!disk_[shard].empty()) offer = {disk_[shard].rbegin()->first, {}};
    ps::ChainServer& machine = *servers_.at(process.id).shards[shard];
    SendFrom(process.id, shard, machine.OnView(ps::ShardViewOf(view, shard), offer));
    LoadIfWanted(process.id, shard);
  }
  world_.Open(process, view);
}

membership::Report ShardServers::ReportOf(const Process& process) {
  const Server& server = servers_.at(process.id);
  membership::Report report = server.session->MakeReport();
  pb::ParameterServerReport said = ReportWithLayout();
  report.checkpoint_turn = server.turn;
  for (std::size_t shard = 0; shard < options_.shards; ++shard) {
    const ps::ChainServer& machine = *server.shards[shard];
    const bool here = report.installed && machine.fence() == report.installed->number;
    if (here && machine.open()) {
      pb::ShardLedger& ledger = *said.add_ledgers();
      ledger.set_shard(static_cast<std::int64_t>(shard));
      ps::Put(machine.state()->ledger(), ledger);
    }
    ps::Put(ps::ShardReport{machine.state_id(), machine.cached(),
                            here && machine.phase() == ps::ServerPhase::kLost, loads_[shard]},
            *said.add_shards());
    if (here && machine.phase() == ps::ServerPhase::kAborted) said.set_broken(true);
  }
  report.parameter_server = said.SerializeAsString();
  return report;
}

void ShardServers::OnBroken(const Process& process, ViewNumber view) {
  for (const auto& machine : servers_.at(process.id).shards) machine->OnBroken(view);
}

void ShardServers::Post(const MemberId& from, const MemberId& to, std::size_t shard,
                        const ps::Message& message) {
  const ViewNumber view = ps::ViewOf(message);
  const Handler receive = [this, shard, message](Process& process) {
    Receive(process, shard, message);
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
void ShardServers::Receive(Process& process, std::size_t shard, const ps::Message& message) {
  const ViewNumber view = ps::ViewOf(message);
  const MemberId& id = process.id;
  if (view >= process.barred && !process.opened.contains(view)) {
    process.parked[view].emplace_back([this, id, shard, message] {
      if (Process* living = world_.Find(id)) Receive(*living, shard, message);
    });
  } else if (process.role == Role::kServer) {
    world_.Hit(Point::kExchange, process);
    if (!process.alive) return;
    SendFrom(id, shard, servers_.at(id).shards[shard]->OnMessage(message));
    LoadIfWanted(id, shard);
  } else {
    to_client_(process, shard, message);
  }
}

void ShardServers::SendFrom(const MemberId& server, std::size_t shard, const ps::Sends& sends) {
  for (const ps::Send& send : sends) {
    Process* from = world_.Find(server);
    if (from == nullptr) return;  // it was killed in the middle
    if (std::holds_alternative<ps::Individually>(send.message)) world_.Count("individually");
    if (const auto* copy = std::get_if<ps::CopyReply>(&send.message)) {
      world_.Count("copies");
      if (!copy->snapshot) world_.Count("short copies");
      world_.Hit(Point::kCopy, *from);
      if (!from->alive) return;
    }
    Post(server, send.to, shard, send.message);
  }
}

void ShardServers::LoadIfWanted(const MemberId& id, std::size_t shard) {
  Server& server = servers_.at(id);
  const ps::ChainServer& machine = *server.shards[shard];
  const std::optional<StateId> wanted = machine.WantsCheckpoint();
  const ViewNumber view = machine.fence();
  if (!wanted || server.loading[shard] == view) return;
  server.loading[shard] = view;
  world_.Count("restores");
  const auto loaded = [this, id, shard, view, bytes = disk_[shard].at(*wanted)](Process&) {
    SendFrom(id, shard, servers_.at(id).shards[shard]->OnLoaded(view, bytes));
  };
  // The machine may have gone on to another view meanwhile.
  world_.ToProcess(
      id, world_.Chance(0.2) ? world_.Random(1'000, 100'000) : world_.Random(50, 3'000), loaded);
  if (world_.Disturbs(0.1)) world_.ToProcess(id, world_.Random(20'000, 300'000), loaded);
}

// All that it holds, once all of it is whole.
void ShardServers::SaveIfAsked(const MemberId& id, std::int64_t turn) {
  Server& server = servers_.at(id);
  if (turn <= server.turn) return;
  for (const auto& machine : server.shards) {
    const ps::ServerPhase phase = machine->phase();
    if (phase != ps::ServerPhase::kRun && phase != ps::ServerPhase::kOut) return;
  }
  server.turn = turn;
  for (std::size_t shard = 0; shard < options_.shards; ++shard) {
    const ps::ChainServer& machine = *server.shards[shard];
    if (machine.phase() == ps::ServerPhase::kRun) {
      disk_[shard][*machine.state_id()] = machine.state()->Save();
    }
  }
}

// Any replica, at any moment: every shard by itself.
void ShardServers::Snapshot() {
  for (const Process* process : world_.Living(Role::kServer)) {
    if (process->paused || !world_.Chance(0.5)) continue;
    const Server& server = servers_.at(process->id);
    for (std::size_t shard = 0; shard < options_.shards; ++shard) {
      const ps::ChainServer& machine = *server.shards[shard];
      if (machine.phase() != ps::ServerPhase::kRun || !world_.Chance(0.5)) continue;
      disk_[shard][*machine.state_id()] = machine.state()->Save();
    }
  }
}

void ShardServers::OnTick() {
  if (world_.Chance(0.1)) Snapshot();
  for (std::int64_t& load : loads_) {
    if (!options_.loads || (load != 0 && !world_.Chance(0.02))) continue;
    load = world_.Chance(0.5) ? world_.Random(1, 2'000'000) : world_.Random(2'000'000, 50'000'000);
  }
}

// A view restores a shard rightly if some view was before it of which all copies are gone.
void ShardServers::OnPublished(const membership::View& view) {
  const auto ended = [this](const MemberId& id) { return world_.Ended(id); };
  for (std::size_t shard = 0; shard < options_.shards; ++shard) {
    const membership::ReplicaGroup& chain = view.groups[shard];
    const bool all_copies_gone = std::ranges::any_of(views_, [&](const auto& past) {
      return std::ranges::all_of(past.second.groups[shard].members, ended);
    });
    if (chain.restore && all_copies_gone) restored_[shard].insert(view.number);
    if (views_.empty() || !chain.by_load) continue;
    const std::vector<MemberId>& before = views_.rbegin()->second.groups[shard].members;
    const bool moves = chain.members != before && before.size() <= chain.members.size();
    if (moves) world_.Count("moves");
  }
  views_.emplace(view.number, view);
}

void ShardServers::Check() {
  for (const Process* process : world_.Living(Role::kServer)) {
    Server& server = servers_.at(process->id);
    for (std::size_t shard = 0; shard < options_.shards; ++shard) {
      const ps::ChainServer& machine = *server.shards[shard];
      const std::optional<StateId> state = machine.state_id();
      if (!state || *state == server.seen[shard]) continue;
      server.seen[shard] = *state;
      if (server.based[shard] != state->view) {
        server.based[shard] = state->view;
        invariants_.OnBase(shard, state->view, *machine.state(),
                           restored_[shard].contains(state->view));
      }
      invariants_.OnState(shard, *state, *machine.state());
    }
  }
}

const ps::ShardState* ShardServers::NewestState(std::size_t shard) const {
  const membership::View* view = world_.Newest().view();
  if (view == nullptr) return nullptr;
  const MemberId& tail = view->groups[shard].members.back();
  const ps::ChainServer& machine = *servers_.at(tail).shards[shard];
  const bool serves =
      world_.Find(tail) != nullptr && machine.fence() == view->number && machine.open();
  return serves ? machine.state() : nullptr;
}

std::string ShardServers::Standing(const Process& process) const {
  std::string standing;
  for (const auto& machine : servers_.at(process.id).shards) {
    absl::StrAppend(&standing, ":", static_cast<int>(machine->phase()), machine->open() ? "o" : "");
  }
  return standing;
}

}  // namespace starling::simulation
