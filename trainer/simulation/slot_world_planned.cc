// SPDX-License-Identifier: Apache-2.0
// The real coordinator: parameter_server::SlotCoordinator with streams to its members that break,
// reports and directives that are late or lost, and successors that know nothing.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/parameter_server/convert.h"
#include "trainer/simulation/slot_world.h"

namespace starling::simulation {
namespace {

namespace pb = v1alpha1;

constexpr std::int64_t kTick = 10'000;

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

}  // namespace

void SlotWorld::AddPod(const std::string& uid, std::int64_t index, bool server) {
  membership::Pod pod;
  pod.uid = uid;
  pod.name = uid;
  pod.role = server ? ps::kServerRole : ps::kWorkerRole;
  pod.index = index;
  pod.ip = "127.0.0.9";
  pods_.push_back(std::move(pod));
}

// The controller has seen the pod's end, and makes another.
std::string SlotWorld::ReplacePod(const std::string& uid) {
  const auto pod = std::find_if(pods_.begin(), pods_.end(),
                                [&](const membership::Pod& one) { return one.uid == uid; });
  const membership::Pod gone = *pod;
  pods_.erase(pod);
  std::string next = uid + "+";
  AddPod(next, gone.index, gone.role == ps::kServerRole);
  Trace(absl::StrCat("pod ", next, " in the place of ", uid));
  SayDesired();
  return next;
}

void SlotWorld::SayDesired() {
  membership::Desired desired;
  desired.sequence = ++desired_;
  desired.workers = options_.clients;
  desired.servers = options_.servers;
  desired.pods = pods_;
  // The controller speaks to the newest only.
  At(Random(100, 20'000), [this, desired, leader = leaders_.back()] {
    if (!Leads(*leader)) return;
    leader->machine->OnDesired(desired, absl::FromUnixMicros(now_));
    AfterEvent(*leader);
  });
}

void SlotWorld::TakeOver() {
  ViewNumber seen = 0;
  auto leader = std::make_shared<Leader>();
  leader->from = now_;
  if (!leaders_.empty()) {
    seen = jobs_.empty() ? 0 : jobs_.rbegin()->first;
    ++incarnation_;
    ++outcome_.takeovers;
    leader->from = now_ + Random(0, 100'000);
    // The one before is dead, or leads on.
    const bool leads_on = Chance(0.5);
    leaders_.back()->until = now_ + (leads_on ? Random(10'000, 500'000) : 0);
    Trace(absl::StrCat("a new coordinator, ", incarnation_, leads_on ? " beside the old" : ""));
  }
  leader->incarnation = incarnation_;
  ps::SlotCoordinator::Options options;
  options.common.heartbeat_timeout = absl::Milliseconds(200);
  options.common.takeover_timeout = absl::Seconds(8);
  options.common.first_view_grace = absl::Milliseconds(50);
  options.common.rules = options_.plan;
  options.ahead_patience = absl::Milliseconds(300);
  options.balance.patience = absl::Milliseconds(10);
  options.tables = [this](const ps::Layout&) -> absl::StatusOr<ps::JobTables> {
    ps::JobTables tables;
    tables.parameter_slots = pushes_.size();
    for (std::size_t slot = 0; slot < pushes_.size(); ++slot) {
      tables.ids.push_back({static_cast<std::uint32_t>(slot), {0, table_->rows}});
    }
    return tables;
  };
  leader->machine = std::make_unique<ps::SlotCoordinator>(options, SpecOf(options_));
  for (const membership::Pod& pod : pods_) {
    leader->streams[pod.uid].dialled = leader->from + (Chance(0.3) ? Random(0, 300'000) : 0);
  }
  leaders_.push_back(leader);
  const membership::Grant grant{incarnation_, "", pods_, seen};
  At(leader->from - now_, [this, grant, leader] {
    if (!Leads(*leader)) return;
    leader->machine->OnGrant(grant, absl::FromUnixMicros(now_));
    if (leader == leaders_.back()) SayDesired();
  });
}

void SlotWorld::PlanTick() {
  At(kTick, [this] { PlanTick(); });
  if (Chance(0.1)) Snapshot();
  const bool first = loads_.empty();
  loads_.resize(pushes_.size());
  for (std::int64_t& load : loads_) {
    if (!options_.loads || (!first && !Chance(0.02))) continue;
    load = Chance(0.5) ? Random(0, 2'000'000) : Random(2'000'000, 50'000'000);
  }
  for (const auto& leader : leaders_) {
    if (!Leads(*leader)) continue;
    KeepStreams(*leader);
    leader->machine->OnTick(absl::FromUnixMicros(now_));
    AfterEvent(*leader);
    TellAll(*leader);
  }
}

bool SlotWorld::Leads(const Leader& leader) const {
  return now_ >= leader.from && (leader.until == 0 || now_ < leader.until);
}

const ps::SlotCoordinator* SlotWorld::Newest() const {
  return leaders_.empty() ? nullptr : leaders_.back()->machine.get();
}

// The shell's dials: who lives is found, who has ended refuses.
void SlotWorld::KeepStreams(Leader& leader) {
  const absl::Time now = absl::FromUnixMicros(now_);
  for (const auto& [uid, pod] : leader.machine->PodsToDial()) {
    Stream& stream = leader.streams[uid];
    if (stream.to && !processes_.at(*stream.to).alive && Chance(0.5)) {
      stream.to.reset();
      leader.machine->OnDisconnected(uid, now);
    }
    if (stream.to || now_ < stream.dialled) continue;
    const auto process = std::find_if(
        processes_.begin(), processes_.end(),
        [&uid = uid](const auto& one) { return one.first.pod_uid == uid && one.second.alive; });
    if (process == processes_.end()) {
      leader.machine->OnRefused(uid, now);
      continue;
    }
    stream = {process->first, stream.dialled, now_, now_};
    leader.machine->OnConnected(uid, now);
  }
}

void SlotWorld::AfterEvent(const Leader& leader) {
  const membership::View* newest = leader.machine->view();
  if (newest == nullptr || jobs_.contains(newest->number)) return;
  if (leader.machine.get() != Newest()) ++outcome_.late_views;
  Publish(*newest);
}

void SlotWorld::TellAll(Leader& leader) {
  for (auto& [uid, stream] : leader.streams) {
    if (!stream.to || (!Late() && Chance(0.05))) continue;
    const Micros delay = Chance(0.1) ? Random(1'000, 100'000) : Random(100, 3'000);
    stream.told = std::max(stream.told, now_ + delay);  // a stream keeps its order
    Deliver(*stream.to, stream.told - now_,
            [this, directive = leader.machine->DirectiveFor(uid)](Process& process) {
              Obey(process, directive);
            });
  }
}

void SlotWorld::Obey(Process& process, const membership::Directive& directive) {
  const bool older = directive.incarnation < process.incarnation;
  if (older && options_.rules.sync.refuse_lower_incarnation) return;
  process.incarnation = directive.incarnation;
  pb::ParameterServerDirective part;
  if (!part.ParseFromString(directive.parameter_server)) return;
  const ViewNumber number = directive.view ? directive.view->number : 0;
  if (number != 0 && membership::IncarnationOf(number) == directive.incarnation) {
    Install(process, views_.at(number));
  }
  if (process.server) {
    for (const std::int64_t slot : part.fetch_ahead()) {
      const auto at = static_cast<std::size_t>(slot);
      SendFrom(process.id, at, servers_.at(process.id).slots[at]->Prefetch());
    }
    return;
  }
  if (process.view != number) return;
  Client& client = clients_.at(process.id);
  client.listed.assign(part.leases().begin(), part.leases().end());
  const auto unlisted = [&](ps::Lease lease) {
    return std::find(client.listed.begin(), client.listed.end(), lease) == client.listed.end();
  };
  std::erase_if(client.done, unlisted);
  std::erase_if(client.returned, [&](const auto& one) { return unlisted(one.first); });
}

// A process reports every so often, as long as it lives.
void SlotWorld::Live(const MemberId& id) {
  Deliver(id, Random(5'000, 15'000), [this, id](Process& process) {
    const Micros delay = Chance(0.1) ? Random(1'000, 60'000) : Random(100, 3'000);
    if (Late() || !Chance(0.05)) {
      At(delay, [this, made = now_, leaders = leaders_, report = ReportOf(process)] {
        for (const auto& leader : leaders) OnReport(*leader, report, made);
      });
    }
    Live(id);
  });
}

membership::Report SlotWorld::ReportOf(const Process& process) const {
  membership::Report report;
  report.id = process.id;
  report.highest_incarnation = process.incarnation;
  pb::ParameterServerReport said;
  said.mutable_layout()->set_parameters(1);
  said.mutable_layout()->set_samples(1);
  if (process.view != 0) report.installed = jobs_.at(process.view);
  if (!process.server) {
    const Client& client = clients_.at(process.id);
    for (const ps::Lease lease : client.done) said.add_done(lease);
    for (const ps::Lease lease : client.listed) {
      const auto returned = client.returned.find(lease);
      const bool held = returned == client.returned.end() || now_ >= returned->second;
      if (held && !client.done.contains(lease)) said.add_held(lease);
    }
    report.parameter_server = said.SerializeAsString();
    return report;
  }
  std::int64_t slot = 0;
  for (const auto& machine : servers_.at(process.id).slots) {
    const bool here = machine->fence() == process.view;
    if (here && machine->open()) {
      pb::SlotLedger& ledger = *said.add_ledgers();
      ledger.set_slot(slot);
      ps::Put(machine->state()->ledger(), ledger);
    }
    ps::Put(ps::SlotReport{machine->state_id(), machine->cached(),
                           here && machine->phase() == ps::ServerPhase::kLost,
                           loads_.empty() ? 0 : loads_[static_cast<std::size_t>(slot)]},
            *said.add_slots());
    if (here && machine->phase() == ps::ServerPhase::kAborted) said.set_broken(true);
    ++slot;
  }
  report.parameter_server = said.SerializeAsString();
  return report;
}

void SlotWorld::OnReport(Leader& leader, const membership::Report& report, Micros made) {
  if (!Leads(leader) || processes_.at(report.id).suspected) return;
  Stream& stream = leader.streams[report.id.pod_uid];
  if (stream.to != report.id || made < stream.made) return;
  stream.made = made;
  leader.machine->OnReport(report.id.pod_uid, report, absl::FromUnixMicros(now_));
  AfterEvent(leader);
}

void SlotWorld::Publish(const membership::View& job) {
  View view;
  view.number = job.number;
  for (std::size_t slot = 0; slot < job.groups.size(); ++slot) {
    view.slots.push_back(ps::SlotViewOf(job, slot));
    const bool all_copies_gone = std::any_of(views_.begin(), views_.end(), [&](const auto& past) {
      const auto& chain = past.second.slots[slot].group.members;
      return std::all_of(chain.begin(), chain.end(),
                         [this](const auto& member) { return Terminated(member); });
    });
    if (!job.groups[slot].restore || !all_copies_gone) continue;
    view.restored.insert(slot);
    restored_[slot].insert(view.number);
  }
  ++outcome_.views;
  if (!jobs_.empty()) {
    const membership::View& before = jobs_.rbegin()->second;
    for (std::size_t slot = 0; slot < job.groups.size(); ++slot) {
      const membership::ReplicaGroup& chain = job.groups[slot];
      const std::vector<MemberId>& old = before.groups[slot].members;
      const bool moves = chain.by_load && chain.members != old;
      outcome_.moves += moves && old.size() <= chain.members.size() ? 1 : 0;
    }
  }
  jobs_.emplace(job.number, job);
  const View& published = views_.emplace(view.number, std::move(view)).first->second;
  Trace(absl::StrCat("view ", published.number, ": ", job.workers().size(), " clients"));
  for (const membership::ReplicaGroup& chain : job.groups) {
    std::string line = "  slot:";
    for (const MemberId& id : chain.members) absl::StrAppend(&line, " ", id.pod_uid, "/", id.start);
    Trace(chain.restore ? line + " restore" : line);
  }
}

}  // namespace starling::simulation
