// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/shard_job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"

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

// Each lease is a unit, and others are nobody's.
ps::ShardOptions ShardOf(const ShardOptions& options) {
  const std::size_t rows = static_cast<std::size_t>(options.leases) + kUnleased;
  return {TableOfUnits(rows), {0, rows}, options.model, options.shard_rules};
}

std::int64_t PortionsOf(const consistency::Options& model) {
  const auto* in_step = std::get_if<consistency::BulkSynchronous>(&model);
  return in_step == nullptr ? 0 : in_step->portions;
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
      staleness_(StalenessOf(options.model)),
      portions_(PortionsOf(options.model)),
      invariants_(shards_),
      world_(options, {.servers = options.servers, .speed = kSpeed, .refuses_old_data = false},
             invariants_),
      servers_({.shard = ShardOf(options),
                .shards = shards_,
                .portions = portions_,
                .whims = options.whims,
                .loads = options.loads},
               world_, invariants_,
               [this](Process& process, std::size_t shard, const ps::Message& message) {
                 SendFrom(process.id, clients_.at(process.id).machine->OnMessage(shard, message));
                 OnClientEvents(process.id);
               }),
      pushes_(shards_),
      next_unit_(static_cast<std::size_t>(options.leases)) {}

std::unique_ptr<membership::Coordinator> ShardJob::NewCoordinator(
    membership::CoordinatorOptions common) {
  return std::make_unique<ps::ShardCoordinator>(servers_.CoordinatorOf(std::move(common)),
                                                SpecOf(options_));
}

void ShardJob::OnStarted(Process& process) {
  process.role == Role::kServer ? servers_.OnStarted(process.id) : StartClient(process.id);
}

void ShardJob::OnDirective(Process& process, const membership::Directive& directive) {
  if (process.role == Role::kServer) return servers_.OnDirective(process, directive);
  membership::Session& session = *clients_.at(process.id).session;
  if (!Obeys(world_, process, session, directive)) return;
  pb::ParameterServerDirective part;
  if (!part.ParseFromString(directive.parameter_server)) return;
  if (directive.view && session.MayEnter(*directive.view)) {
    session.Enter(*directive.view);
    EnterAsClient(process, *directive.view);
  }
  if (process.alive && directive.view && process.barred == directive.view->number) {
    HearLeases(process.id, {part.leases().begin(), part.leases().end()});
  }
}

membership::Report ShardJob::ReportOf(Process& process) {
  if (process.role == Role::kServer) return servers_.ReportOf(process);
  const Client& client = clients_.at(process.id);
  membership::Report report = client.session->MakeReport();
  pb::ParameterServerReport said = ReportWithLayout();
  for (const ps::Lease lease : client.done) said.add_done(lease);
  for (const ps::Lease lease : client.listed) {
    const auto returned = client.returned.find(lease);
    const bool held = returned == client.returned.end() || world_.now() >= returned->second;
    if (held && !client.done.contains(lease)) said.add_held(lease);
  }
  report.parameter_server = said.SerializeAsString();
  return report;
}

void ShardJob::OnBroken(Process& process, ViewNumber view, const MemberId& /*peer*/) {
  if (process.role == Role::kServer) servers_.OnBroken(process, view);
}

bool ShardJob::Finished(const membership::Coordinator& coordinator) {
  if (!world_.Late() || !static_cast<const ps::ShardCoordinator&>(coordinator).AllDone()) {
    return false;
  }
  for (std::size_t shard = 0; shard < shards_; ++shard) {
    if (servers_.NewestState(shard) == nullptr) return false;
  }
  return std::ranges::all_of(world_.Living(Role::kWorker), [this](const Process* process) {
    return clients_.at(process->id).units.empty();
  });
}

void ShardJob::OnFinished() {
  for (std::size_t shard = 0; shard < shards_; ++shard) {
    invariants_.OnEnd(shard, ShardInvariants::ContentOf(*servers_.NewestState(shard)),
                      static_cast<std::size_t>(options_.leases));
  }
}

std::string ShardJob::Standing(const Process& process) {
  if (process.role == Role::kServer) return servers_.Standing(process);
  const Client& client = clients_.at(process.id);
  return absl::StrCat("clock ", client.clock, " units ", client.units.size(), " reading ",
                      client.reading.size(), client.machine->ready() ? "" : " not ready");
}

}  // namespace starling::simulation
