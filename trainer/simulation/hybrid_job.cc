// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/hybrid_job.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/parameter_server/convert.h"

namespace starling::simulation {
namespace {

namespace pb = v1alpha1;
using membership::Phase;

constexpr std::int64_t kHybridSpeed = 4;

std::size_t LeasesOf(const HybridOptions& options) {
  return 1 + static_cast<std::size_t>(options.steps * options.portions);
}

pb::TrainingJobSpec SpecOf(const HybridOptions& options) {
  pb::TrainingJobSpec spec;
  spec.mutable_stop()->set_steps(options.steps);
  spec.mutable_dataset()->set_global_batch_size(options.portions);
  pb::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_replication(options.replication);
  server.set_samples_per_push(1);
  server.mutable_consistency()->mutable_bulk_synchronous();
  server.add_tensors("embedding");
  return spec;
}

ps::ShardOptions ShardOf(const HybridOptions& options) {
  const std::size_t rows = LeasesOf(options);
  return {TableOfUnits(rows),
          {0, rows},
          consistency::BulkSynchronous{options.portions},
          options.shard_rules};
}

}  // namespace

Outcome Simulate(const HybridOptions& options) { return HybridJob(options).Run(); }

HybridJob::HybridJob(const HybridOptions& options)
    : PeerJob(options, {.servers = options.servers,
                        .speed = kHybridSpeed,
                        .refuses_old_data = options.rules.view_check_on_data}),
      hybrid_(options),
      shards_(static_cast<std::size_t>(options.shards)),
      shard_invariants_(shards_),
      servers_({.shard = ShardOf(options),
                .shards = shards_,
                .portions = options.portions,
                .whims = options.whims,
                .loads = options.loads},
               world_, shard_invariants_,
               [this](Process& process, std::size_t shard, const ps::Message& message) {
                 Receive(process, shard, message);
               }) {}

std::size_t HybridJob::Leases() const { return LeasesOf(hybrid_); }

bool HybridJob::Lists(const Client& client, ps::Lease lease) {
  return std::ranges::find(client.listed, lease) != client.listed.end();
}

std::unique_ptr<membership::Coordinator> HybridJob::NewCoordinator(
    membership::CoordinatorOptions common) {
  return std::make_unique<ps::ShardCoordinator>(servers_.CoordinatorOf(std::move(common)),
                                                SpecOf(hybrid_));
}

void HybridJob::OnStarted(Process& process) {
  if (process.role == Role::kServer) return servers_.OnStarted(process.id);
  PeerJob::OnStarted(process);
  Client& client = clients_[process.id];
  client.machine = std::make_unique<ps::ShardClient>(process.id, shards_, hybrid_.shard_rules);
  client.held.resize(shards_);
  Retry(process.id);
}

void HybridJob::OnDirective(Process& process, const membership::Directive& directive) {
  if (process.role == Role::kServer) return servers_.OnDirective(process, directive);
  PeerJob::OnDirective(process, directive);
  if (process.alive) HearLeases(As(process), directive);
}

membership::Report HybridJob::ReportOf(Process& process) {
  if (process.role == Role::kServer) return servers_.ReportOf(process);
  membership::Report report = PeerJob::ReportOf(process);
  pb::ParameterServerReport said = ReportWithLayout();
  said.set_broken(report.phase == Phase::kAborted);
  said.set_chains(static_cast<std::int64_t>(shards_));
  const Client& client = clients_.at(process.id);
  if (client.entered != 0 && client.told == client.entered && report.installed &&
      report.installed->number == client.entered) {
    for (const ps::Lease lease : client.listed) {
      client.done.contains(lease) ? said.add_done(lease) : said.add_held(lease);
    }
    for (const ps::Lease lease : client.begun) {
      if (!Lists(client, lease)) said.add_held(lease);
    }
    for (const ps::Lease lease : client.done_unlisted) said.add_done(lease);
  }
  report.parameter_server = said.SerializeAsString();
  return report;
}

void HybridJob::OnBroken(Process& process, ViewNumber view, const MemberId& peer) {
  if (process.role == Role::kServer) return servers_.OnBroken(process, view);
  PeerJob::OnBroken(process, view, peer);
}

void HybridJob::GoOn(Process& process) {
  if (process.role == Role::kWorker) PeerJob::GoOn(process);
}

void HybridJob::OnPublished(const membership::View& view) {
  servers_.OnPublished(view);
  const bool first = !std::exchange(published_, true);
  if (view.groups.back().restore && !first) stepped_back_ = true;
}

void HybridJob::Check() {
  PeerJob::Check();
  servers_.Check();
  invariants_.Take(shard_invariants_);
}

std::string HybridJob::Standing(const Process& process) {
  if (process.role == Role::kServer) return servers_.Standing(process);
  const Client& client = clients_.at(process.id);
  return absl::StrCat(PeerJob::Standing(process), " doing ", static_cast<int>(client.doing),
                      " flights ", client.flights.size(), client.ready ? "" : " not ready",
                      client.first_values ? "" : " no first values", client.over ? " over" : "");
}

void HybridJob::Receive(Process& process, std::size_t shard, const ps::Message& message) {
  if (process.busy) {
    process.behind.emplace_back([this, id = process.id, shard, message] {
      world_.ToLoop(id, 0,
                    [this, shard, message](Process& free) { Receive(free, shard, message); });
    });
    return;
  }
  SendFrom(process.id, clients_.at(process.id).machine->OnMessage(shard, message));
  OnClientEvents(As(process));
}

void HybridJob::SendFrom(const MemberId& client, const ps::ClientSends& sends) {
  for (const ps::ClientSend& send : sends) {
    servers_.Post(client, send.send.to, send.shard, send.send.message);
  }
}

void HybridJob::OnClientEvents(Peer& peer) {
  for (const ps::ClientEvent& event : clients_.at(peer.id).machine->TakeEvents()) {
    if (peer.alive) std::visit([&](const auto& one) { On(peer, one); }, event);
  }
}

void HybridJob::On(Peer& peer, const ps::StartedOver&) {
  Client& client = clients_.at(peer.id);
  client.ready = false;
  client.flights.clear();
  client.sent.clear();
  client.begun.clear();
  client.done.clear();
  client.done_unlisted.clear();
}

void HybridJob::On(Peer& peer, const ps::Ready&) {
  clients_.at(peer.id).ready = true;
  GoOn(peer);
}

void HybridJob::On(Peer& peer, const ps::Acknowledged& event) {
  Client& client = clients_.at(peer.id);
  const auto sent = client.sent.find({event.shard, event.sequence});
  if (sent == client.sent.end()) return;  // it only told where this client stands
  const auto flight = client.flights.find(sent->second);
  client.sent.erase(sent);
  world_.Count("acknowledged");
  if (event.outcome == ps::Outcome::kRefused) invariants_.OnStuck("a portion was refused");
  shard_invariants_.OnAcknowledged(event.shard, client.machine->view(), flight->second.unit);
  if (--flight->second.open > 0) return;
  const ps::Lease lease = flight->second.lease;
  client.flights.erase(flight);
  if (client.begun.erase(lease) > 0) {
    (Lists(client, lease) ? client.done : client.done_unlisted).insert(lease);
  }
  if (client.doing == Doing::kAwaiting) Await(peer);
  if (client.doing == Doing::kNothing) GoOn(peer);
}

void HybridJob::On(Peer& /*peer*/, const ps::Rejected& event) {
  invariants_.OnStuck(absl::StrCat("a good push was rejected: ", event.why.ToString()));
}

void HybridJob::On(Peer& peer, const ps::ReadDone& event) {
  Client& client = clients_.at(peer.id);
  if (client.reading.erase({event.shard, event.request}) == 0) return;
  world_.Count("reads");
  std::vector<float> values(event.values->size() / sizeof(float));
  std::memcpy(values.data(), event.values->data(), event.values->size());
  std::uint64_t& held = client.held[event.shard] = 1;
  for (const float value : values) held = Mix(held, value == 0 ? 0 : 1);
  Step& step = client.step;
  if (client.over && step.lease == 0) {
    shard_invariants_.OnEnd(event.shard, values, Leases());
  } else if (step.lease != 0) {
    shard_invariants_.OnReadInStep(event.shard, hybrid_.portions,
                                   ps::StepOfLease(step.lease, hybrid_.portions), Leases(), values);
  } else {
    shard_invariants_.OnReadForStep(event.shard, hybrid_.portions, step.from.step, stepped_back_,
                                    Leases(), event.version, values);
    step.ahead = step.ahead || event.version != step.from.step;
    const auto here = 1 + static_cast<std::size_t>(step.from.step * hybrid_.portions);
    step.exact = step.exact && std::ranges::none_of(values.begin() + static_cast<long>(here),
                                                    values.end(), [](float v) { return v != 0; });
  }
  if (client.reading.empty()) HasRead(peer);
}

void HybridJob::Retry(const MemberId& id) {
  world_.ToProcess(id, world_.Random(20'000, 60'000), [this, id](Process&) {
    SendFrom(id, clients_.at(id).machine->Resend());
    Retry(id);
  });
}

// As worker::LeaseQueue hears them.
void HybridJob::HearLeases(Peer& peer, const membership::Directive& directive) {
  Client& client = clients_.at(peer.id);
  const membership::View* installed = peer.machine->view();
  pb::ParameterServerDirective part;
  if (!directive.view || installed == nullptr || directive.view->number != installed->number ||
      installed->number < client.told || !part.ParseFromString(directive.parameter_server)) {
    return;
  }
  client.told = installed->number;
  client.listed.assign(part.leases().begin(), part.leases().end());
  client.first_values = part.begun();
  client.conclude = part.conclude();
  std::erase_if(client.done, [&](ps::Lease lease) { return !Lists(client, lease); });
  std::erase_if(client.done_unlisted, [&](ps::Lease lease) { return Lists(client, lease); });
  if (client.doing == Doing::kReading && !ReadIsWanted(client)) {
    world_.Count("given up for a lease");
    client.begun.erase(client.step.lease);
    client.reading.clear();
    client.doing = Doing::kNothing;
  }
  if (client.doing == Doing::kNothing) GoOn(peer);
}

// The first that is listed in this view and neither begun nor done.
std::optional<ps::Lease> HybridJob::NextLease(const Client& client) const {
  if (client.told != client.entered) return std::nullopt;
  for (const ps::Lease lease : client.listed) {
    if (client.begun.contains(lease) || client.done.contains(lease)) continue;
    if (hybrid_.catch_up || lease == ps::kFirstValues) return lease;
  }
  return std::nullopt;
}

}  // namespace starling::simulation
