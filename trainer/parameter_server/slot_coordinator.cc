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
      spec_(std::make_unique<v1alpha1::TrainingJobSpec>(spec)) {
  work_ = WorkOf(*spec_, spec_->stop(), /*samples=*/1);
  work_.total = 0;  // until the layout is known
}

SlotCoordinator::~SlotCoordinator() = default;

void SlotCoordinator::OnPodsChanged() {
  std::erase_if(
      heard_, [this](const auto& entry) { return detector_.FindProcess(entry.first) == nullptr; });
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
  LearnWork(now);
  Judge(now);
  GiveWork(now);
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
  part.set_settled(told_settled_);
  if (!ended_ && !conclude_) {
    for (const Lease lease : book_->HeldBy({*id, client->joined})) part.add_leases(lease);
  }
  if (FirstClient() == client) {
    part.set_evaluate(evaluate_);
    part.set_conclude(conclude_);
  }
  return part.SerializeAsString();
}

// Workers speak for training: one that has a result or a failure before all others, then the first
// of the view. Of checkpoints the servers know.
void SlotCoordinator::FillTraining(Summary& summary) const {
  summary.training = training_;
  summary.settled_step = informed_ || settled_ > 0 ? settled_ : -1;
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

}  // namespace starling::parameter_server
