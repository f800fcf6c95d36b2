// SPDX-License-Identifier: Apache-2.0
// What people are told of losses: who, why, how soon it was noticed, what it cost.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/membership/coordinator.h"

namespace starling::membership {

void Coordinator::NoteLosses(const View& view, absl::Time now) {
  for (const ViewMember& member : view.members) {
    const Standing standing = StandingOf(member.id, now);
    if (standing == Standing::kReporting) lost_.erase(member.id);
    if (standing != Standing::kGone && standing != Standing::kSilent) continue;
    if (!lost_.insert(member.id).second) continue;
    Incident incident;
    incident.id = member.id;
    incident.record.time = now;
    incident.record.pod = member.pod;
    const auto process = processes_.find(member.id.pod_uid);
    const bool heard = process != processes_.end() && process->second.report;
    if (heard) {
      incident.record.silence = now - process->second.heard;
      incident.record.detection = now - std::max(process->second.heard, process->second.broken);
    }
    const bool frozen = heard && process->second.connected && standing == Standing::kSilent;
    incident.record.reason = frozen ? "WorkerSilent" : "WorkerLost";
    incident.record.message = frozen ? "it stopped answering" : "its process ended";
    if (heard && process->second.report->id.start > member.id.start) {
      incident.record.exit = process->second.report->last_exit;
      incident.record.detection = absl::ZeroDuration();  // unless its supervisor says when it ended
    }
    incident.in_flight = SyncedByAll(view);
    for (const ViewMember& other : view.members) {
      const Report* report = ReportOf(other.id);
      if (report != nullptr && report->state) {
        incident.reached = std::max(incident.reached, report->state->step);
      }
    }
    AddIncident(std::move(incident));
  }
}

// Recovery ends with the first completed step of a view that goes on without the lost one.
void Coordinator::FollowRecovery(const Report& report, absl::Time now) {
  const ViewNumber in = report.installed ? report.installed->number : 0;
  if (report.stepped && in == Newest()) failed_views_ = 0;
  for (Incident& incident : incidents_) {
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

// A pod's new process tells how the one before it ended.
void Coordinator::NoteExit(const Report& report) {
  for (auto incident = incidents_.rbegin(); incident != incidents_.rend(); ++incident) {
    const bool same_pod = incident->id.pod_uid == report.id.pod_uid;
    if (!same_pod || incident->id.start >= report.id.start || incident->record.exit) continue;
    incident->record.exit = report.last_exit;
    return;
  }
}

void Coordinator::AddIncident(Incident incident) {
  incidents_.push_back(std::move(incident));
  while (incidents_.size() > static_cast<std::size_t>(options_.max_incidents)) {
    incidents_.erase(incidents_.begin());
  }
}

}  // namespace starling::membership
