// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/slot_coordinator.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/parameter_server/convert.h"

namespace starling::parameter_server {
namespace {

namespace pb = v1alpha1;
using membership::Role;
using membership::Summary;

}  // namespace

SlotCoordinator::SlotCoordinator(Options options, const v1alpha1::TrainingJobSpec& spec)
    : Coordinator(options.common, {kWorkerRole, kServerRole}, /*settled=*/0),
      slot_options_([&] {
        options.plan.sync = options.common.rules;
        return options;
      }()),
      spec_(std::make_unique<v1alpha1::TrainingJobSpec>(spec)),
      work_(options.work, spec) {}

SlotCoordinator::~SlotCoordinator() = default;

void SlotCoordinator::OnPodsChanged() {
  const auto gone = [this](const std::string& uid) { return !detector_.FindProcess(uid); };
  std::erase_if(heard_, [&](const auto& entry) { return gone(entry.first); });
  work_.Forget(gone);
  plan_due_ = absl::InfinitePast();
}

// What the roster knows is known before anybody returns who was given up.
void SlotCoordinator::OnTakenOver() {
  ChooseLayout();
  if (MakePlan()) LearnViews();
}

void SlotCoordinator::Decide(absl::Time now) {
  ChooseLayout();
  if (!MakePlan()) return;
  LearnViews();
  // What is halted and saved stays as it is, whoever goes.
  if (stopped_ && Halted()) return ReleaseLeaving();
  Replan(now);
  Work(now);
  AskForCheckpoint(now);
  ReleaseLeaving();
  if (waiting_.empty()) waiting_ = plan_->waiting();
}

const View* SlotCoordinator::view() const {
  return plan_ && plan_->newest().number != 0 ? &plan_->newest() : nullptr;
}

// What everybody is told of the tables, and what is this member's alone.
std::string SlotCoordinator::PartFor(const MemberId* id) const {
  pb::ParameterServerDirective part;
  if (layout_) Put(*layout_, *part.mutable_layout());
  const View* newest = view();
  if (newest == nullptr || id == nullptr) return part.SerializeAsString();
  for (const std::size_t slot : plan_->FetchAhead(*id)) {
    part.add_fetch_ahead(static_cast<std::int64_t>(slot));
  }
  const membership::ViewMember* client = newest->Find(*id);
  if (client == nullptr || client->role != Role::kWorker) return part.SerializeAsString();
  work_.Fill({*id, client->joined}, part);
  return part.SerializeAsString();
}

// Workers speak for training: one that has a result or a failure before all others, then the first
// of the view. Of checkpoints the servers know.
void SlotCoordinator::FillTraining(Summary& summary) const {
  summary.training = training_;
  summary.settled_step = work_.informed() || work_.settled() > 0 ? work_.settled() : -1;
  const View* newest = view();
  const membership::Report* speaker = nullptr;
  std::tuple<bool, bool, bool, std::int64_t> best;
  pb::TrainingReport saved;
  std::optional<std::int64_t> settings;
  for (const auto& [uid, process] : detector_.processes()) {
    const membership::Pod* pod = detector_.FindPod(uid);
    if (pod == nullptr || !process.report || returning_.contains(uid)) continue;
    const membership::Report& report = *process.report;
    const bool server = pod->role == kServerRole;
    const bool here = newest != nullptr && newest->Has(report.id);
    if (here) {
      settings =
          std::min(settings.value_or(report.settings_generation), report.settings_generation);
    }
    if (server && report.training.failure.empty()) {
      pb::TrainingReport mine;
      const bool tells = mine.ParseFromString(report.training.bytes) && mine.has_checkpoint();
      if (tells && !saved.has_checkpoint()) saved = mine;
      continue;
    }
    const std::tuple rank(!report.training.failure.empty(), report.training.has_result, here,
                          -pod->index);
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

void SlotCoordinator::Work(absl::Time now) {
  if (view() == nullptr) return;
  const bool enough = EnoughIn(*view(), census_);
  LeaseSource::Standing standing;
  standing.running = plan_->running();
  standing.halted = Halted();
  standing.paused = ServersLeave() || (!enough && !Halted());
  standing.settings = detector_.desired()->settings;
  standing.leaving = [this](const MemberId& id) { return detector_.IsLeaving(id); };
  if (!enough && !Halted()) {
    waiting_ = absl::StrCat("waits for more members: ", view()->workers().size(), " workers and ",
                            view()->servers().size(), " parameter servers are there, at least ",
                            census_.min_clients, " and ", census_.min_servers, " are needed");
  }
  if (work_.Update(standing, now)) Changed();
  if (work_.informed() && work_.progressed()) failed_views_ = 0;
  FollowRecovery(now);
}

// A loss is over with the first batch that is done in a view that goes on without the lost one, or
// when such a view runs and nobody has anything to do.
void SlotCoordinator::FollowRecovery(absl::Time now) {
  const std::int64_t lost = work_.repeated();
  for (membership::Incident& incident : detector_.incidents()) {
    if (incident.record.recovery || incident.repaired_by == 0) continue;
    if (lost > 0) {
      incident.record.repeated_steps = lost;
      absl::StrAppend(&incident.record.message, "; ", lost,
                      lost == 1 ? " batch is" : " batches are", " done again");
    }
    if (!work_.recovered() || incident.repaired_by > view()->number) continue;
    incident.record.recovery = now - incident.record.time;
  }
}

bool SlotCoordinator::SavedByAll(std::int64_t turn) const {
  return std::ranges::all_of(view()->servers(), [&](const membership::ViewMember& server) {
    const membership::Report* report = detector_.ReportOf(server.id);
    return report != nullptr && report->checkpoint_turn >= turn;
  });
}

// Everyone who holds anything was asked to go: nobody takes over what they have.
bool SlotCoordinator::ServersLeave() const {
  return view() != nullptr &&
         std::ranges::all_of(view()->servers(), [this](const membership::ViewMember& server) {
           return detector_.IsLeaving(server.id);
         });
}

void SlotCoordinator::AskForCheckpoint(absl::Time now) {
  if (view() == nullptr || !work_.informed()) return;
  const bool saved = SavedByAll(rounds_.number());
  if (saved && rounds_.asked()) saved_settled_ = rounds_.settled();
  if (Halted() || ServersLeave()) {
    if (halt_round_ == 0 && plan_->running() && (!work_.Outstanding() || ServersLeave())) {
      halt_round_ = rounds_.Ask(work_.settled(), rounds_.due());
      Changed();
    }
    stopped_ = Halted() && halt_round_ != 0 && SavedByAll(halt_round_);
    return;
  }
  halt_round_ = 0;
  stopped_ = false;
  const bool outstanding = !saved && rounds_.asked();
  if (!plan_->running()) return;
  if (!rounds_.Due(CheckpointInterval(), work_.settled(), outstanding, now)) return;
  rounds_.Ask(work_.settled(), now + CheckpointInterval());
  Changed();
}

}  // namespace starling::parameter_server
