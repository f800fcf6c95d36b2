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
using membership::FailureDetector;
using membership::Role;
using membership::Summary;

// A process of this pod is in the view, or in one that the view tells of.
bool HasPod(const View& view, const std::string& pod_uid) {
  const auto of_pod = [&](const MemberId& id) { return id.pod_uid == pod_uid; };
  const auto was = [&](const membership::PastView& past) {
    return std::any_of(past.members.begin(), past.members.end(), of_pod);
  };
  return std::any_of(view.members.begin(), view.members.end(),
                     [&](const membership::ViewMember& member) { return of_pod(member.id); }) ||
         std::any_of(view.groups.begin(), view.groups.end(), [&](const ReplicaGroup& group) {
           return std::any_of(group.since.begin(), group.since.end(), was);
         });
}

}  // namespace

SlotCoordinator::SlotCoordinator(Options options, const v1alpha1::TrainingJobSpec& spec)
    : options_([&] {
        options.plan.sync = options.common.rules;
        return options;
      }()),
      spec_(std::make_unique<v1alpha1::TrainingJobSpec>(spec)),
      detector_(options_.common, {kWorkerRole, kServerRole}) {
  told_.boot_id = options_.common.boot_id;
  work_ = WorkOf(*spec_, spec_->stop(), /*samples=*/1);
  work_.total = 0;  // until the layout is known
}

SlotCoordinator::~SlotCoordinator() = default;

void SlotCoordinator::NoticeGap(absl::Time now) {
  const absl::Duration gap = detector_.OnTime(now);
  enough_since_ += gap;
  unwitnessed_since_ += gap;
}

void SlotCoordinator::OnGrant(const membership::Grant& grant, absl::Time now) {
  NoticeGap(now);
  if (!detector_.OnGrant(grant, now)) return;
  turn_ = static_cast<std::int64_t>(grant.incarnation << 32);
  Changed();
  Refresh(now);
}

void SlotCoordinator::OnDesired(const membership::Desired& desired, absl::Time now) {
  NoticeGap(now);
  if (!detector_.OnDesired(desired)) return;
  std::erase_if(
      heard_, [this](const auto& entry) { return detector_.FindProcess(entry.first) == nullptr; });
  plan_due_ = absl::InfinitePast();
  Changed();
  Refresh(now);
}

void SlotCoordinator::OnConnected(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  detector_.OnConnected(pod_uid);
  Refresh(now);
}

void SlotCoordinator::OnDisconnected(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  if (detector_.OnDisconnected(pod_uid, now)) Refresh(now);
}

void SlotCoordinator::OnRefused(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  if (detector_.OnRefused(pod_uid)) Refresh(now);
}

void SlotCoordinator::OnTick(absl::Time now) {
  NoticeGap(now);
  Refresh(now);
}

void SlotCoordinator::OnReport(const std::string& pod_uid, const membership::Report& report,
                               absl::Time now) {
  NoticeGap(now);
  const FailureDetector::Heard heard = detector_.OnReport(pod_uid, report, now);
  if (heard == FailureDetector::Heard::kNothing) return;
  if (heard == FailureDetector::Heard::kNewProcess) {
    released_.erase(pod_uid);
    leaving_since_.erase(pod_uid);
  }
  if (heard != FailureDetector::Heard::kSignOfLife) {
    Hear(report);
    const std::vector<SlotReport>& slots = heard_.at(pod_uid).slots;
    detector_.SettleDoubt(pod_uid, std::any_of(slots.begin(), slots.end(), [](const auto& slot) {
                            return slot.state.has_value();
                          }));
  }
  Refresh(now);
}

// Every event ends here: decide, then see whether the controller should hear of it at once.
void SlotCoordinator::Refresh(absl::Time now) {
  Decide(now);
  Summary summary = MakeSummary(now);
  training_ = summary.training;
  summary = membership::NewsOf(std::move(summary));
  if (summary == told_) return;
  told_ = std::move(summary);
  ++report_version_;
}

void SlotCoordinator::Decide(absl::Time now) {
  waiting_.clear();
  if (!detector_.grant() || superseded()) return;
  if (!TakeOver(now)) return;
  if (!detector_.desired()) {
    waiting_ = "the controller has not yet said how many workers and servers are wanted";
    return;
  }
  if (detector_.finished()) return;
  ChooseLayout();
  if (!MakePlan()) return;
  LearnViews();
  // What is halted and saved stays as it is, whoever goes.
  if (stopped_ && Halted()) return Release();
  Replan(now);
  LearnWork(now);
  Judge(now);
  GiveWork(now);
  TakeTurn(now);
  Release();
  if (waiting_.empty()) waiting_ = plan_->waiting();
}

// C4: publish nothing until everyone who may have been in a view has reported or has ended.
bool SlotCoordinator::TakeOver(absl::Time now) {
  if (taken_over_) return true;
  const ViewNumber newest = detector_.grant()->newest_view;
  const bool witness =
      newest != 0 && std::any_of(heard_.begin(), heard_.end(), [&](const auto& entry) {
        return entry.second.installed >= newest;
      });
  const auto in_a_view = [this](const std::string& pod_uid) {
    return std::any_of(heard_.begin(), heard_.end(), [&](const auto& entry) {
      return entry.second.view && HasPod(*entry.second.view, pod_uid);
    });
  };
  if (!detector_.HeardRoster(witness, in_a_view, Risked(), now, waiting_)) return false;
  taken_over_ = true;
  Changed();
  return true;
}

std::string SlotCoordinator::Risked() const {
  return absl::StrCat("updates after step ", settled_,
                      " that only it knows are lost if it comes back");
}

const View* SlotCoordinator::view() const {
  return plan_ && plan_->newest().number != 0 ? &plan_->newest() : nullptr;
}

membership::Directive SlotCoordinator::DirectiveFor(const std::string& pod_uid) const {
  membership::Directive directive;
  if (!detector_.grant()) return directive;
  directive.incarnation = detector_.incarnation();
  if (detector_.desired()) {
    directive.settings = detector_.desired()->settings;
    directive.finished = detector_.desired()->finished;
  }
  const auto first_turn = static_cast<std::int64_t>(detector_.incarnation() << 32);
  directive.checkpoint_turn = turn_ == first_turn ? 0 : turn_;
  const FailureDetector::Process* process = detector_.FindProcess(pod_uid);
  directive.superseded = process != nullptr && process->outdated;
  directive.released = released_.contains(pod_uid);
  if (!taken_over_ || superseded()) return directive;
  if (const View* newest = view()) directive.view = *newest;
  directive.parameter_server =
      PartFor(process != nullptr && process->report ? &process->report->id : nullptr);
  return directive;
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

Summary SlotCoordinator::MakeSummary(absl::Time now) const {
  Summary summary;
  summary.boot_id = options_.common.boot_id;
  if (!detector_.grant()) return summary;
  summary.incarnation = detector_.incarnation();
  const View* newest = view();
  summary.newest_view =
      std::max(newest == nullptr ? 0 : newest->number, detector_.grant()->newest_view);
  summary.waiting = waiting_;
  summary.stopped = taken_over_ && Halted() && (newest == nullptr || stopped_);
  summary.view_synced = newest != nullptr && plan_->running();
  detector_.FillSummary(
      summary, released_,
      [newest](const MemberId& id) { return newest != nullptr && newest->Has(id); }, now);
  FillTraining(summary);
  return summary;
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
    if (pod == nullptr || !process.report) continue;
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
