// SPDX-License-Identifier: Apache-2.0
// What people are told of losses: who, why, how soon it was noticed, what it cost.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/membership/peer_coordinator.h"

namespace starling::membership {

void PeerCoordinator::NoteLosses(const View& view, absl::Time now) {
  for (const ViewMember& member : view.members) {
    const Liveness liveness = LivenessOf(member.id, now);
    Incident* incident = detector_.NoteLoss(member.id, member.pod, "Worker", liveness, now);
    if (incident == nullptr) continue;
    incident->in_flight = SyncedByAll(view);
    for (const ViewMember& other : view.members) {
      const Report* report = detector_.ReportOf(other.id);
      if (report != nullptr && report->state) {
        incident->reached = std::max(incident->reached, report->state->step);
      }
    }
  }
}

// Recovery ends with the first completed step of a view that goes on without the lost one.
void PeerCoordinator::FollowRecovery(const Report& report, absl::Time now) {
  const ViewNumber in = report.installed ? report.installed->number : 0;
  if (report.stepped && in == Newest()) failed_views_ = 0;
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

std::string PeerCoordinator::Risked() const {
  return absl::StrCat("steps after step ", settled_step_,
                      " that only it knows are lost if it comes back");
}

}  // namespace starling::membership
