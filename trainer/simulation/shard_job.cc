// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/shard_job.h"

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
pb::TrainingJobSpec SpecOf(const ShardOptions& options) {
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

std::shared_ptr<const ps::TableSpec> TableOf(const ShardOptions& options) {
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

Outcome Simulate(const ShardOptions& options) { return ShardJob(options).Run(); }

ShardJob::ShardJob(const ShardOptions& options)
    : options_(options),
      shards_(static_cast<std::size_t>(options.shards)),
      table_(TableOf(options)),
      staleness_(StalenessOf(options.model)),
      invariants_(shards_),
      world_(options, {.servers = options.servers, .speed = kSpeed, .refuses_old_data = false},
             invariants_),
      pushes_(shards_),
      disk_(shards_),
      restored_(shards_),
      loads_(shards_),
      next_unit_(static_cast<std::size_t>(options.leases)) {
  const auto* in_step = std::get_if<consistency::BulkSynchronous>(&options.model);
  if (in_step != nullptr) portions_ = in_step->portions;
}

std::unique_ptr<membership::Coordinator> ShardJob::NewCoordinator(
    membership::CoordinatorOptions common) {
  ps::ShardCoordinator::Options options;
  options.common = std::move(common);
  options.ahead_patience = absl::Milliseconds(300);
  options.balance.patience = absl::Milliseconds(10);
  options.tables = [this](const ps::Layout&) -> absl::StatusOr<ps::JobTables> {
    ps::JobTables tables;
    tables.parameter_shards = shards_;
    for (std::size_t shard = 0; shard < shards_; ++shard) {
      tables.ids.push_back({static_cast<std::uint32_t>(shard), {0, table_->rows}});
    }
    return tables;
  };
  if (options_.whims) {
    options.placement = [this](std::shared_ptr<membership::Placement> planned) {
      return std::make_shared<Whims>(std::move(planned), world_);
    };
  }
  return std::make_unique<ps::ShardCoordinator>(std::move(options), SpecOf(options_));
}

void ShardJob::OnStarted(Process& process) {
  membership::Session::Options options;
  options.id = process.id;
  options.rules = options_.shard_rules.sync;
  As(process).session = std::make_unique<membership::Session>(std::move(options));
  process.role == Role::kServer ? StartServer(process.id) : StartClient(process.id);
}

void ShardJob::StartServer(const MemberId& id) {
  Server& server = servers_[id];
  for (std::size_t shard = 0; shard < shards_; ++shard) {
    ps::ChainServer::Options options;
    options.id = id;
    options.shard = ShardOfAll();
    options.observer = [this, id, shard](const ps::Entry& entry, ps::Outcome outcome) {
      const ps::ChainServer& machine = *servers_.at(id).shards[shard];
      invariants_.OnAppended(shard, machine.installed()->group.epoch, entry, outcome);
      if (portions_ > 0) invariants_.OnAppendedInStep(shard, *machine.state(), entry, outcome);
      if (outcome == ps::Outcome::kSkipped) world_.Count("skipped");
      if (entry.parts.size() > 1) world_.Count("aggregates");
    };
    server.shards.push_back(std::make_unique<ps::ChainServer>(std::move(options)));
  }
  server.seen.resize(shards_);
  server.based.resize(shards_);
  server.loading.resize(shards_);
}

void ShardJob::OnDirective(Process& process, const membership::Directive& directive) {
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
    for (const std::int64_t shard : part.fetch_ahead()) {
      const auto at = static_cast<std::size_t>(shard);
      SendFrom(id, at, servers_.at(id).shards[at]->Prefetch());
    }
  } else if (directive.view && member.barred == directive.view->number) {
    HearLeases(id, {part.leases().begin(), part.leases().end()});
  }
}

void ShardJob::Install(Member& member, const membership::View& view) {
  const MemberId& id = member.id;
  world_.Hit(Point::kSync, member);
  if (!member.alive) return;
  member.barred = view.number;
  member.opened.clear();
  if (member.role == Role::kWorker) {
    EnterAsClient(id, view);
  } else {
    for (std::size_t shard = 0; shard < shards_; ++shard) {
      std::optional<membership::CheckpointOffer> offer;
      if (!disk_[shard].empty()) offer = {disk_[shard].rbegin()->first, {}};
      SendFrom(id, shard,
               servers_.at(id).shards[shard]->OnView(ps::ShardViewOf(view, shard), offer));
      LoadIfWanted(id, shard);
    }
  }
  world_.Open(member, view);
}

membership::Report ShardJob::ReportOf(Process& process) {
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
  for (std::size_t shard = 0; shard < shards_; ++shard) {
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

void ShardJob::OnBroken(Process& process, ViewNumber view, const MemberId& /*peer*/) {
  if (process.role != Role::kServer) return;
  for (const auto& machine : servers_.at(process.id).shards) machine->OnBroken(view);
}

// Inside a chain links keep their order until they break; between clients and servers a retry may
// overtake, be lost, or arrive twice.
void ShardJob::Post(const MemberId& from, const MemberId& to, std::size_t shard,
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
void ShardJob::Receive(Process& process, std::size_t shard, const ps::Message& message) {
  const ViewNumber view = ps::ViewOf(message);
  const MemberId& id = process.id;
  if (view > process.barred) {
    process.parked[view].emplace_back([this, id, shard, message] {
      if (Process* living = world_.Find(id)) Receive(*living, shard, message);
    });
  } else if (process.role == Role::kServer) {
    world_.Hit(Point::kExchange, process);
    if (!process.alive) return;
    SendFrom(id, shard, servers_.at(id).shards[shard]->OnMessage(message));
    LoadIfWanted(id, shard);
  } else {
    SendFrom(id, clients_.at(id).machine->OnMessage(shard, message));
    OnClientEvents(id);
  }
}

void ShardJob::SendFrom(const MemberId& server, std::size_t shard, const ps::Sends& sends) {
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

void ShardJob::LoadIfWanted(const MemberId& id, std::size_t shard) {
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
void ShardJob::SaveIfAsked(const MemberId& id, std::int64_t turn) {
  Server& server = servers_.at(id);
  if (turn <= server.turn) return;
  for (const auto& machine : server.shards) {
    const ps::ServerPhase phase = machine->phase();
    if (phase != ps::ServerPhase::kRun && phase != ps::ServerPhase::kOut) return;
  }
  server.turn = turn;
  for (std::size_t shard = 0; shard < shards_; ++shard) {
    const ps::ChainServer& machine = *server.shards[shard];
    if (machine.phase() == ps::ServerPhase::kRun) {
      disk_[shard][*machine.state_id()] = machine.state()->Save();
    }
  }
}

// Any replica, at any moment: every shard by itself.
void ShardJob::Snapshot() {
  for (const Process* process : world_.Living(Role::kServer)) {
    if (process->paused || !world_.Chance(0.5)) continue;
    const Server& server = servers_.at(process->id);
    for (std::size_t shard = 0; shard < shards_; ++shard) {
      const ps::ChainServer& machine = *server.shards[shard];
      if (machine.phase() != ps::ServerPhase::kRun || !world_.Chance(0.5)) continue;
      disk_[shard][*machine.state_id()] = machine.state()->Save();
    }
  }
}

void ShardJob::OnTick() {
  if (world_.Chance(0.1)) Snapshot();
  for (std::int64_t& load : loads_) {
    if (!options_.loads || (load != 0 && !world_.Chance(0.02))) continue;
    load = world_.Chance(0.5) ? world_.Random(1, 2'000'000) : world_.Random(2'000'000, 50'000'000);
  }
}

// A view restores a shard rightly if some view was before it of which all copies are gone.
void ShardJob::OnPublished(const membership::View& view) {
  const auto ended = [this](const MemberId& id) { return world_.Ended(id); };
  for (std::size_t shard = 0; shard < shards_; ++shard) {
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

void ShardJob::Check() {
  for (const Process* process : world_.Living(Role::kServer)) {
    Server& server = servers_.at(process->id);
    for (std::size_t shard = 0; shard < shards_; ++shard) {
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

const ps::ShardState* ShardJob::NewestState(std::size_t shard) {
  const membership::View* view = world_.Newest().view();
  if (view == nullptr) return nullptr;
  const MemberId& tail = view->groups[shard].members.back();
  const ps::ChainServer& machine = *servers_.at(tail).shards[shard];
  const bool serves =
      world_.Find(tail) != nullptr && machine.fence() == view->number && machine.open();
  return serves ? machine.state() : nullptr;
}

bool ShardJob::Finished(const membership::Coordinator& coordinator) {
  if (!world_.Late() || !static_cast<const ps::ShardCoordinator&>(coordinator).AllDone()) {
    return false;
  }
  for (std::size_t shard = 0; shard < shards_; ++shard) {
    if (NewestState(shard) == nullptr) return false;
  }
  return std::ranges::all_of(world_.Living(Role::kWorker), [this](const Process* process) {
    return clients_.at(process->id).units.empty();
  });
}

void ShardJob::OnFinished() {
  for (std::size_t shard = 0; shard < shards_; ++shard) {
    invariants_.OnEnd(shard, ShardInvariants::ContentOf(*NewestState(shard)),
                      static_cast<std::size_t>(options_.leases));
  }
}

std::string ShardJob::Standing(const Process& process) {
  if (process.role == Role::kServer) {
    std::string standing;
    for (const auto& machine : servers_.at(process.id).shards) {
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
