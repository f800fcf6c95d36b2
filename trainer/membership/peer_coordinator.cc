// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/peer_coordinator.h"

#include <algorithm>
#include <utility>

namespace starling::membership {

PeerCoordinator::PeerCoordinator(Options options)
    : Coordinator(std::move(options), {"worker"}, /*settled=*/-1), history_(options_.rules) {}

void PeerCoordinator::OnTakenOver() {
  newest_unknown_ = detector_.grant()->newest_view > (Newest() == nullptr ? 0 : Newest()->number);
}

// The members of the current view speak for training; the one that is farthest is heard, and
// whoever has a result or a failure before all others.
void PeerCoordinator::FillTraining(Summary& summary) const {
  summary.training = training_;
  summary.settled_step = settled_step_;
  const View* current = Current();
  if (current == nullptr) return;
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

bool PeerCoordinator::Stopped() const {
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

bool PeerCoordinator::Learn(const Report& report, absl::Time now) {
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
  FollowRecovery(report, now);
  return report.state.has_value();
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

// Recovery ends with the first completed step of a view that goes on without the lost one.
void PeerCoordinator::FollowRecovery(const Report& report, absl::Time now) {
  const ViewNumber in = report.installed ? report.installed->number : 0;
  if (report.stepped && Newest() != nullptr && in == Newest()->number) failed_views_ = 0;
  for (Incident& incident : detector_.incidents()) {
    if (incident.record.recovery) continue;
    const bool repaired = incident.repaired_by != 0 && in >= incident.repaired_by;
    if (report.state && (incident.repaired_by == 0 || report.state->view < incident.repaired_by)) {
      incident.reached = std::max(incident.reached, report.state->step);
    }
    if (!repaired || !report.stepped) continue;
    incident.record.recovery = now - incident.record.time;
    const std::int64_t begun = incident.reached + (incident.in_flight ? 1 : 0);
    incident.record.repeated_steps = std::max<std::int64_t>(0, begun - report.base_step);
  }
}

}  // namespace starling::membership
