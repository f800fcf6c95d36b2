// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/shard_coordinator.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/parameter_server/convert.h"

namespace starling::parameter_server {
namespace {

namespace pb = v1alpha1;
using membership::Participant;
using membership::Phase;
using membership::Role;
using membership::ViewMember;

constexpr std::int64_t kMostChains = 4096;  // chains of a view

}  // namespace

ShardCoordinator::ShardCoordinator(Options options, const v1alpha1::TrainingJobSpec& spec)
    : Coordinator(options.common, {kWorkerRole, kServerRole}, /*settled=*/0,
                  /*replan=*/absl::Milliseconds(20)),
      shard_options_(std::move(options)),
      spec_(std::make_unique<v1alpha1::TrainingJobSpec>(spec)),
      hybrid_(spec.exchange().parameter_server().tensors_size() > 0),
      work_(shard_options_.work, spec) {}

ShardCoordinator::~ShardCoordinator() = default;

void ShardCoordinator::OnPodsChanged() {
  const auto gone = [this](const std::string& uid) { return !detector_.FindProcess(uid); };
  std::erase_if(layouts_, [&](const auto& one) { return gone(one.first.pod_uid); });
  std::erase_if(leaving_since_, [&](const auto& one) { return gone(one.first.pod_uid); });
}

void ShardCoordinator::Hear(const membership::Report& report, Participant& said,
                            absl::Time /*now*/) {
  pb::ParameterServerReport from;
  if (report.parameter_server.empty() || !from.ParseFromString(report.parameter_server)) return;
  work_.OnReport(report, from);
  if (from.has_layout()) layouts_[report.id] = FromProto(from.layout());
  if (from.broken()) said.phase = Phase::kAborted;
  for (const pb::ShardReport& shard : from.shards()) said.groups.push_back(FromProto(shard));
  if (!from.has_chains()) return;
  said.phase = report.phase;
  said.groups.resize(
      static_cast<std::size_t>(std::clamp<std::int64_t>(from.chains(), 0, kMostChains)) + 1);
  said.groups.back() = {.state = report.state, .lost = report.phase == Phase::kLost};
}

// Whoever serves tables already says what they are; else the first worker that knows.
void ShardCoordinator::ChooseLayout() {
  if (layout_) return;
  const Layout* best = nullptr;
  std::tuple<bool, bool, std::int64_t> most;
  for (const auto& [id, layout] : layouts_) {
    const membership::Report* report = detector_.ReportOf(id);
    if (report == nullptr) continue;
    const membership::Pod& pod = *detector_.FindPod(id.pod_uid);
    const std::tuple rank(report->installed.has_value(), pod.role == kServerRole, -pod.index);
    if (best != nullptr && rank <= most) continue;
    best = &layout;
    most = rank;
  }
  if (best == nullptr) return;
  layout_ = *best;
  Changed();
}

std::vector<std::shared_ptr<membership::Placement>> ShardCoordinator::MakePlacements() {
  ChooseLayout();
  if (!layout_) waiting_ = "waits for a worker that has read model and data";
  if (!layout_) return {};
  absl::StatusOr<JobTables> tables =
      shard_options_.tables ? shard_options_.tables(*layout_) : TablesOf(*spec_, *layout_);
  if (!tables.ok()) {
    impossible_ = std::string(tables.status().message());
    return {};
  }
  work_.Begin(tables->parameter_shards, layout_->samples);
  ShardPlacement::Options options;
  options.shards = tables->ids;
  options.weights = WeightsOf(*tables);
  options.replication = static_cast<int>(spec_->exchange().parameter_server().replication());
  options.ahead_patience = shard_options_.ahead_patience;
  options.balance = shard_options_.balance;
  const auto placement = std::make_shared<ShardPlacement>(std::move(options));
  placement_ = placement;
  std::shared_ptr<membership::Placement> shards = placement;
  if (shard_options_.placement) shards = shard_options_.placement(std::move(shards));
  if (hybrid_) return {shards, std::make_shared<membership::LockstepPlacement>()};
  return {shards};
}

// A worker whose model or data are not those of the tables would push nonsense.
void ShardCoordinator::Admit(membership::Roster& roster) {
  roster.idle = roster.servers.most <= 0;
  for (auto& [id, one] : roster.participants) {
    const auto layout = layouts_.find(id);
    const bool known = layout != layouts_.end();
    if (one.role == Role::kServer || (known && layout->second == *layout_)) continue;
    one.admitted = false;
    if (!known) continue;
    detector_.processes().at(id.pod_uid).not_admitted = absl::StrCat(
        "its model or data differ from those that the job began with (", layout->second.parameters,
        " parameters and ", layout->second.samples, " samples here, ", layout_->parameters, " and ",
        layout_->samples, " there): give every worker the same files");
  }
}

// A client that leaves finishes what it holds before it is out of the view.
bool ShardCoordinator::Keeps(const MemberId& id, absl::Time now) {
  const ViewMember* client = view() == nullptr ? nullptr : view()->Find(id);
  if (client == nullptr || !work_.Holds({id, client->joined})) return false;
  const absl::Time since = leaving_since_.emplace(id, now).first->second;
  return now - since < shard_options_.drain_patience;
}

void ShardCoordinator::Work(absl::Time now) {
  ShardPlacement::Ahead ahead;
  if (Running()) ahead = placement_->ahead();
  if (std::exchange(ahead_, std::move(ahead)) != ahead_) Changed();
  if (view() == nullptr) return;
  if (hybrid_) FollowLockstep();
  GiveWork(now);
  AskForCheckpoint(now);
}

// How far the workers of the newest view are. They are done when each says so.
void ShardCoordinator::FollowLockstep() {
  const auto workers = view()->workers();
  std::int64_t settled = -1;
  lockstep_.over = true;
  for (const ViewMember& worker : workers) {
    const membership::Report* report = detector_.ReportOf(worker.id);
    const bool here =
        report != nullptr && report->installed && report->installed->number == view()->number;
    lockstep_.over = lockstep_.over && here && report->phase == Phase::kDone;
    if (!here || report->base_step < 0) continue;
    lockstep_.base = report->base_step;  // the same for all
    settled = std::max(settled, report->settled_step);
  }
  if (settled >= 0) lockstep_.settled = settled;
}

bool ShardCoordinator::WorkersStopped() const {
  const auto workers = view()->workers();
  return std::ranges::all_of(workers, [this](const ViewMember& worker) {
    const membership::Report* report = detector_.ReportOf(worker.id);
    return detector_.Terminated(worker.id) ||
           (report != nullptr && report->stopped && report->installed &&
            report->installed->number == view()->number);
  });
}

void ShardCoordinator::GiveWork(absl::Time now) {
  // Where workers make steps together they go on while every shard has a server.
  const bool enough = hybrid_ || membership::EnoughIn(*view(), roster_);
  LeaseSource::Standing standing;
  standing.running = Running();
  standing.halted = Halted();
  standing.paused = ServersLeave() || (!enough && !Halted());
  standing.settings = detector_.desired()->settings;
  standing.leaving = [this](const MemberId& id) { return detector_.IsLeaving(id); };
  if (hybrid_) standing.lockstep = lockstep_;
  if (!enough && !Halted()) {
    waiting_ = absl::StrCat("waits for more members: ", view()->workers().size(), " workers and ",
                            view()->servers().size(), " parameter servers are there, at least ",
                            roster_.workers.least, " and ", roster_.servers.least, " are needed");
  }
  if (work_.Update(standing, now)) Changed();
  if (work_.progressed()) failed_views_ = 0;
  FollowRecovery(now);
}

// A loss is over with the first batch that is done in a view that goes on without the lost one, or
// when such a view runs and nobody has anything to do.
void ShardCoordinator::FollowRecovery(absl::Time now) {
  const std::int64_t lost = work_.repeated();
  for (membership::Incident& incident : detector_.incidents()) {
    if (incident.record.recovery || incident.repaired_by == 0) continue;
    if (lost > 0) {
      incident.record.repeated_steps = lost;
      absl::StrAppend(&incident.record.message, "; ", lost,
                      lost == 1 ? " batch is" : " batches are", " done again");
    }
    if (!work_.recovered()) continue;
    incident.record.recovery = now - incident.record.time;
  }
}

bool ShardCoordinator::SavedByAll(std::int64_t turn) const {
  return std::ranges::all_of(view()->servers(), [&](const membership::ViewMember& server) {
    const membership::Report* report = detector_.ReportOf(server.id);
    return report != nullptr && report->checkpoint_turn >= turn;
  });
}

// Everyone who holds anything was asked to go: nobody takes over what they have.
bool ShardCoordinator::ServersLeave() const {
  return std::ranges::all_of(view()->servers(), [this](const membership::ViewMember& server) {
    return detector_.IsLeaving(server.id);
  });
}

// Where workers hold a state they have stopped when it is saved. Portions that a server lacks then
// are dealt when the job goes on: its ledger is saved with its parameters.
bool ShardCoordinator::AtRest() const {
  if (hybrid_ && Halted()) return WorkersStopped();
  return Running() && (!work_.Outstanding() || ServersLeave());
}

void ShardCoordinator::AskForCheckpoint(absl::Time now) {
  if (!work_.informed()) return;
  const bool saved = SavedByAll(rounds_.number());
  if (saved) {
    saved_settled_ = rounds_.settled();
    rounds_.Saved();
  }
  if (Halted() || ServersLeave()) {
    if (halt_round_ == 0 && AtRest()) {
      halt_round_ = rounds_.Ask(settled(), rounds_.due());
      Changed();
    }
    stopped_ = halt_round_ != 0 && SavedByAll(halt_round_);
    return;
  }
  halt_round_ = 0;
  stopped_ = false;
  const bool outstanding = !saved && rounds_.asked();
  if (!Running()) return;
  if (!rounds_.Due(CheckpointInterval(), settled(), outstanding, now)) return;
  rounds_.Ask(settled(), now + CheckpointInterval());
  Changed();
}

// What everybody is told of the tables, and what is this member's alone.
std::string ShardCoordinator::PartFor(const MemberId* id) const {
  pb::ParameterServerDirective part;
  if (layout_) Put(*layout_, *part.mutable_layout());
  const ViewMember* member = view() == nullptr || id == nullptr ? nullptr : view()->Find(*id);
  if (member == nullptr) return part.SerializeAsString();
  if (member->role == Role::kWorker) {
    work_.Fill({*id, member->joined}, part);
  } else if (const auto ahead = ahead_.find(*id); ahead != ahead_.end()) {
    for (const std::size_t shard : ahead->second) {
      part.add_fetch_ahead(static_cast<std::int64_t>(shard));
    }
  }
  return part.SerializeAsString();
}

// Workers speak for training: one that has a result or a failure before all others, then the first
// of the view. Of checkpoints the servers know.
void ShardCoordinator::FillTraining(membership::Summary& summary) const {
  summary.training = training_;
  summary.settled_step = work_.informed() || settled() > 0 ? settled() : -1;
  const View* newest = view();
  const membership::Report* speaker = nullptr;
  std::tuple<bool, bool, bool, std::int64_t> best;
  pb::TrainingReport saved;
  std::optional<std::int64_t> settings;
  for (const auto& [uid, process] : detector_.processes()) {
    if (!process.report || returning_.contains(uid)) continue;
    const membership::Pod& pod = *detector_.FindPod(uid);
    const membership::Report& report = *process.report;
    const bool server = pod.role == kServerRole;
    const bool here = newest != nullptr && newest->Has(report.id);
    if (here) {
      settings =
          std::min(settings.value_or(report.settings_generation), report.settings_generation);
    }
    if (server && report.training.failure.empty()) {
      pb::TrainingReport mine;
      const bool tells = mine.ParseFromString(report.training.bytes) && mine.has_checkpoint();
      if (tells) saved = mine;
      continue;
    }
    const std::tuple rank(!report.training.failure.empty(), report.training.has_result, here,
                          -pod.index);
    if (speaker != nullptr && rank <= best) continue;
    speaker = &report;
    best = rank;
  }
  summary.settings_generation = settings.value_or(0);
  if (speaker != nullptr && speaker->training != membership::Training{})
    summary.training = speaker->training;
  if (!impossible_.empty()) summary.training.failure = impossible_;
  if (!saved.has_checkpoint() || saved_settled_ < 0) return;
  pb::TrainingReport merged;
  merged.ParseFromString(summary.training.bytes);
  *merged.mutable_checkpoint() = saved.checkpoint();
  merged.mutable_checkpoint()->set_step(saved_settled_);
  summary.training.bytes = merged.SerializeAsString();
}

}  // namespace starling::parameter_server
