// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/peer_coordinator.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::membership {

PeerCoordinator::PeerCoordinator(Options options)
    : Coordinator(std::move(options), {kWorkerRole}, /*settled=*/-1,
                  /*replan=*/absl::ZeroDuration()) {}

void PeerCoordinator::Hear(const Report& report, Participant& said, absl::Time now) {
  said.phase = report.phase;
  said.groups.push_back({.state = report.state, .lost = report.phase == Phase::kLost});
  FollowRecovery(report, now);
  NoteLostSteps(report, now);
}

// Whoever lives through a loss holds all that is settled. So where a view goes on from less, all
// who held it have ended, perhaps with the coordinator before this one: no other incident tells
// that. A view that was adopted began before what is settled now, and lost nothing by that.
void PeerCoordinator::NoteLostSteps(const Report& report, absl::Time now) {
  if (settled_ < 0 && detector_.grant()) settled_ = detector_.grant()->settled_step;
  const bool goes_on = report.stepped && report.installed && view() != nullptr &&
                       report.installed->number == view()->number &&
                       std::exchange(going_on_, view()->number) != view()->number;
  const bool is_own = goes_on && IncarnationOf(view()->number) == detector_.incarnation();
  if (is_own && report.base_step >= 0 && report.base_step < settled_) {
    Incident incident;
    incident.repaired_by = view()->number;
    incident.record.time = now;
    incident.record.reason = "StepsLost";
    incident.record.message = "nobody that lives holds the newest state";
    incident.record.recovery = absl::ZeroDuration();
    incident.record.repeated_steps = std::max(settled_, reached_) - report.base_step;
    incident.record.resumed_step = report.base_step;
    detector_.AddIncident(std::move(incident));
    settled_ = reached_ = report.base_step;
    Changed();
  }
  settled_ = std::max(settled_, report.settled_step);
  if (report.state) reached_ = std::max(reached_, report.state->step);
}

// Recovery ends with the first completed step of a view that goes on without the lost one.
void PeerCoordinator::FollowRecovery(const Report& report, absl::Time now) {
  const ViewNumber in = report.installed ? report.installed->number : 0;
  if (report.stepped && view() != nullptr && in == view()->number) failed_views_ = 0;
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

// Whose arithmetic or data differ from those of the view, or else of most indices' first, is in
// none.
void PeerCoordinator::Admit(Roster& roster) {
  const View* current = Current();
  std::optional<std::string> identity;
  bool of_view = false;
  const auto identity_of = [this](const Participant& one) -> const std::string& {
    return detector_.ReportOf(one.id)->numeric_identity;
  };
  const std::vector<const Participant*> eligible = roster.Eligible(Role::kWorker);
  for (const Participant* one : eligible) {
    const bool in_view = current != nullptr && current->Has(one->id);
    if (identity_of(*one).empty() || (identity && (of_view || !in_view))) continue;
    identity = identity_of(*one);
    of_view = in_view;
  }
  for (const Participant* one : eligible) {
    const std::string& own = identity_of(*one);
    if (own.empty() || own == identity) continue;
    roster.participants.at(one->id).admitted = false;
    detector_.processes().at(one->id.pod_uid).not_admitted = absl::StrCat(
        "its arithmetic differs from that of the others, so results could not be "
        "reproduced: it has \"",
        own, "\", they have \"", *identity,
        "\"; run it on the same kind of machine, with the same data (data=) and the same program");
  }
}

// What was asked for in a view that is over is not waited for: members have dropped it.
void PeerCoordinator::Work(absl::Time now) {
  if (!Running()) return;
  const View& current = *Current();
  const bool outstanding =
      round_view_ == current.number &&
      std::any_of(current.members.begin(), current.members.end(), [&](const ViewMember& member) {
        return detector_.ReportOf(member.id)->checkpoint_turn < rounds_.number();
      });
  if (round_view_ != current.number) rounds_.Dropped();
  if (!outstanding) rounds_.Saved();
  if (!rounds_.Due(CheckpointInterval(), settled_step_, outstanding, now)) return;
  rounds_.Ask(settled_step_, now + CheckpointInterval());
  round_view_ = current.number;
  Changed();
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
  // Nobody is left who could save anything, though its pod may still be listed.
  return anyone ||
         std::none_of(detector_.processes().begin(), detector_.processes().end(),
                      [this](const auto& entry) {
                        const std::optional<Report>& report = entry.second.report;
                        return report && report->state && !detector_.Terminated(report->id);
                      });
}

}  // namespace starling::membership
