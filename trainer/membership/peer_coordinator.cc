// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/peer_coordinator.h"

#include <algorithm>
#include <utility>

namespace starling::membership {
PeerCoordinator::PeerCoordinator(Options options)
    : options_(options), detector_(std::move(options), {"worker"}), history_(options_.rules) {
  told_.boot_id = options_.boot_id;
}

void PeerCoordinator::NoticeGap(absl::Time now) {
  const absl::Duration gap = detector_.OnTime(now);
  enough_since_ += gap;
  unwitnessed_since_ += gap;
}

void PeerCoordinator::OnGrant(const Grant& grant, absl::Time now) {
  NoticeGap(now);
  if (!detector_.OnGrant(grant, now)) return;
  turn_ = static_cast<std::int64_t>(grant.incarnation << 32);
  ++directives_version_;
  Refresh(now);
}

void PeerCoordinator::OnDesired(const Desired& desired, absl::Time now) {
  NoticeGap(now);
  if (!detector_.OnDesired(desired)) return;
  ++directives_version_;
  Refresh(now);
}

void PeerCoordinator::OnConnected(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  detector_.OnConnected(pod_uid);
  Refresh(now);
}

void PeerCoordinator::OnDisconnected(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  if (detector_.OnDisconnected(pod_uid, now)) Refresh(now);
}

void PeerCoordinator::OnRefused(const std::string& pod_uid, absl::Time now) {
  NoticeGap(now);
  if (detector_.OnRefused(pod_uid)) Refresh(now);
}

void PeerCoordinator::OnTick(absl::Time now) {
  NoticeGap(now);
  Refresh(now);
}

void PeerCoordinator::OnReport(const std::string& pod_uid, const Report& report, absl::Time now) {
  NoticeGap(now);
  const FailureDetector::Heard heard = detector_.OnReport(pod_uid, report, now);
  if (heard == FailureDetector::Heard::kNothing) return;
  if (heard == FailureDetector::Heard::kNewProcess) released_.erase(pod_uid);
  if (heard != FailureDetector::Heard::kSignOfLife) {
    detector_.SettleDoubt(pod_uid, report.state.has_value());
    Learn(report);
    FollowRecovery(report, now);
  }
  Refresh(now);
}

// Every event ends here: decide, then see whether the controller should hear of it at once.
void PeerCoordinator::Refresh(absl::Time now) {
  Decide(now);
  Summary summary = MakeSummary(now);
  training_ = summary.training;
  settled_step_ = summary.settled_step;
  summary = NewsOf(std::move(summary));
  if (summary == told_) return;
  told_ = std::move(summary);
  ++report_version_;
}

Directive PeerCoordinator::DirectiveFor(const std::string& pod_uid) const {
  Directive directive;
  if (!detector_.grant()) return directive;
  directive.incarnation = detector_.grant()->incarnation;
  if (detector_.desired()) {
    directive.settings = detector_.desired()->settings;
    directive.finished = detector_.desired()->finished;
  }
  directive.checkpoint_turn =
      turn_ == static_cast<std::int64_t>(detector_.grant()->incarnation << 32) ? 0 : turn_;
  const FailureDetector::Process* process = detector_.FindProcess(pod_uid);
  directive.superseded = process != nullptr && process->outdated;
  directive.released = released_.contains(pod_uid);
  if (taken_over_ && !superseded() && !published_.empty()) {
    directive.view = published_.rbegin()->second;
  }
  return directive;
}

Summary PeerCoordinator::MakeSummary(absl::Time now) const {
  Summary summary;
  summary.boot_id = options_.boot_id;
  if (!detector_.grant()) return summary;
  summary.incarnation = detector_.grant()->incarnation;
  summary.newest_view = std::max(Newest(), detector_.grant()->newest_view);
  summary.waiting = waiting_;
  summary.stopped = AllStopped();
  const View* current = Current();
  detector_.FillSummary(
      summary, released_,
      [current](const MemberId& id) { return current != nullptr && current->Has(id); }, now);
  FillTraining(summary);
  return summary;
}

// The members of the current view speak for training; the one that is farthest is heard, and
// whoever has a result or a failure before all others.
void PeerCoordinator::FillTraining(Summary& summary) const {
  summary.training = training_;
  summary.settled_step = settled_step_;
  const View* current = Current();
  if (current == nullptr) return;
  summary.view_synced = SyncedByAll(*current);
  const Report* speaker = nullptr;
  std::optional<std::int64_t> settings;
  const auto rank = [](const Report& report) {
    return std::tuple(!report.training.failure.empty(), report.training.has_result,
                      report.settled_step);
  };
  for (const ViewMember& member : current->members) {
    const Report* report = detector_.ReportOf(member.id);
    if (report == nullptr) continue;
    settings =
        std::min(settings.value_or(report->settings_generation), report->settings_generation);
    if (report->state && (speaker == nullptr || rank(*report) > rank(*speaker))) speaker = report;
  }
  summary.settings_generation = settings.value_or(0);
  if (speaker == nullptr) return;
  summary.training = speaker->training;
  summary.settled_step = speaker->settled_step;
}

bool PeerCoordinator::AllStopped() const {
  if (!taken_over_ || !detector_.desired() || !detector_.desired()->settings.halt) return false;
  const View* current = Current();
  if (current == nullptr) return true;
  bool anyone = false;
  for (const ViewMember& member : current->members) {
    if (detector_.Terminated(member.id)) continue;
    const Report* report = detector_.ReportOf(member.id);
    if (report == nullptr || !report->stopped || !report->installed ||
        report->installed->number != current->number) {
      return false;
    }
    anyone = true;
  }
  return anyone ||
         std::none_of(detector_.processes().begin(), detector_.processes().end(),
                      [](const auto& entry) {
                        return entry.second.report && entry.second.report->state.has_value();
                      });
}

void PeerCoordinator::Learn(const Report& report) {
  if (report.installed) {
    const View& view = *report.installed;
    LearnView(view);
    const auto from = published_.find(view.from);
    if (view.at_boundary && from != published_.end() && from->second.Has(report.id)) {
      acted_.insert(view.number);
    }
  }
  if (report.candidate) LearnView(*report.candidate);
  if (report.state) history_.LearnState(report.id, *report.state);
  Prune();
}

void PeerCoordinator::LearnView(const View& view) {
  if (view.groups.size() != 1) return;  // not of this kind of job
  history_.Learn(view.groups.front());
  published_[view.number] = view;
  for (const PastView& past : view.groups.front().since) {
    std::vector<ViewMember> members;
    for (const MemberId& id : past.members) members.push_back({id, "", 0, ""});
    published_.try_emplace(past.number, ViewOfPeers(past.number, std::move(members)));
  }
}

void PeerCoordinator::Prune() {
  history_.Prune([this](const MemberId& id) { return detector_.Terminated(id); });
  std::erase_if(published_,
                [this](const auto& view) { return !history_.past().contains(view.first); });
  std::erase_if(acted_, [this](ViewNumber number) { return !published_.contains(number); });
}

// The newest view that took effect: a prepared one does when a member of the view in which it was
// prepared has installed it (joiners install it at once, which means nothing).
const View* PeerCoordinator::Current() const {
  for (auto view = published_.rbegin(); view != published_.rend(); ++view) {
    if (!view->second.at_boundary) return &view->second;
    const bool acted = acted_.contains(view->first) || !published_.contains(view->second.from) ||
                       SyncedByAll(view->second);
    if (acted) return &view->second;
  }
  return nullptr;
}

// The newest view, if it is prepared in the current one and can still take effect.
const View* PeerCoordinator::Pending(const View* current) const {
  if (current == nullptr || published_.empty()) return nullptr;
  const View& newest = published_.rbegin()->second;
  if (newest.number == current->number || newest.from != current->number) return nullptr;
  if (IncarnationOf(newest.number) == detector_.incarnation() ||
      !options_.rules.incarnation_in_view_number) {
    return &newest;
  }
  // Another coordinator's: whoever has not got it will refuse it, and one is enough.
  const bool all_have_it =
      std::all_of(current->members.begin(), current->members.end(), [&](const ViewMember& member) {
        const Report* report = detector_.ReportOf(member.id);
        return report != nullptr && report->candidate && report->candidate->number == newest.number;
      });
  return all_have_it ? &newest : nullptr;
}

}  // namespace starling::membership
