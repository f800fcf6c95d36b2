// SPDX-License-Identifier: Apache-2.0
// Which coordinator process leads, by the one rule of consensus that is ours: each process is
// granted an incarnation of its own by compare-and-swap in the status, keyed by its boot id.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

const v1alpha1::CoordinatorReport* ReportOf(const Pass& pass, const ObservedPod* pod) {
  const std::optional<ObservedLink>& link = pass.observed.link;
  if (pod == nullptr || !link.has_value() || !link->heard || link->pod_uid != pod->uid) {
    return nullptr;
  }
  return &link->report;
}

// The supervisor has started it again. Steps went on meanwhile, under the last view.
void NoteRestart(Pass& pass) {
  v1alpha1::Incident incident;
  SetTime(incident.mutable_time(), pass.now);
  incident.set_reason("CoordinatorRestarted");
  incident.set_pod(pass.leader->name);
  incident.set_pod_uid(pass.leader->uid);
  incident.set_message("its process ended and was started again; training went on");
  incident.set_recovery_seconds(absl::ToDoubleSeconds(pass.observed.link->outage));
  incident.set_repeated_steps(0);
  AddIncident(pass, std::move(incident));
  pass.status.set_restarts(pass.status.restarts() + 1);
}

// One second of grace, because it is not known whether a process is there to use it.
void Drop(Pass& pass) {
  pass.lost.insert(pass.leader->uid);
  pass.Delete(*pass.leader, 1);
  pass.leader = nullptr;
  pass.report = nullptr;
}

// A controller that has just begun to lead has not heard of it yet; a pod that has had its time to
// start would have answered by now.
absl::Duration CoordinatorSilenceLimit(const Pass& pass, bool heard) {
  if (heard) return pass.options.coordinator_silence;
  return std::max(pass.options.coordinator_silence * 2,
                  pass.options.coordinator_start - pass.AgeOf(*pass.leader));
}

}  // namespace

void FindLeader(Pass& pass) {
  const std::vector<const ObservedPod*> pods = pass.UsablePods(Role::kCoordinator);
  for (const ObservedPod* pod : pods) {
    const v1alpha1::CoordinatorReport* report = ReportOf(pass, pod);
    if (IsCondemned(pass.status, *pod)) continue;
    const bool leads =
        report != nullptr && report->boot_id() == pass.status.coordinator().boot_id();
    if (leads || pass.leader == nullptr) pass.leader = pod;
  }
  // One that was given up is still here only if its deletion failed: its successor leads.
  if (pass.leader == nullptr && !pods.empty()) pass.leader = pods.front();
  for (const ObservedPod* pod : pods) {
    if (pod == pass.leader) continue;
    pass.Reason(absl::StrCat(pod->name, " is a second coordinator"));
    pass.Delete(*pod, 1);
  }
}

void GrantIncarnation(Pass& pass) {
  const v1alpha1::CoordinatorReport* report = ReportOf(pass, pass.leader);
  if (report == nullptr || report->boot_id().empty()) return;
  v1alpha1::CoordinatorGrant& grant = *pass.status.mutable_coordinator();
  const std::uint64_t incarnation = static_cast<std::uint64_t>(grant.incarnation());
  if (report->boot_id() == grant.boot_id() && !report->superseded()) {
    if (report->incarnation() == incarnation && incarnation > 0) pass.report = report;
    return;
  }
  if (report->incarnation() == 0 && !report->superseded()) {
    const bool in_place =
        !grant.boot_id().empty() && pass.observed.link->former_boot_id == grant.boot_id();
    if (in_place && !pass.Finished()) NoteRestart(pass);
    grant.set_incarnation(grant.incarnation() + 1);
    grant.set_boot_id(report->boot_id());
    pass.Reason(absl::StrCat(pass.leader->name, " is granted incarnation ", grant.incarnation()));
    return;
  }
  // It had a grant before another process got the next: its members are told so by that one.
  pass.Reason(absl::StrCat(pass.leader->name, " was superseded"));
  pass.Delete(*pass.leader, 1);
  pass.leader = nullptr;
}

void GiveUpCoordinator(Pass& pass, const std::string& why) {
  v1alpha1::Incident incident;
  SetTime(incident.mutable_time(), pass.now);
  incident.set_reason(std::string(kCoordinatorLost));
  incident.set_pod(pass.leader->name);
  incident.set_pod_uid(pass.leader->uid);
  incident.set_message(absl::StrCat(why, "; it is replaced"));
  incident.set_detection_seconds(absl::ToDoubleSeconds(pass.observed.link->silent));
  AddIncident(pass, std::move(incident));
  Drop(pass);
}

void GiveUpSilentCoordinator(Pass& pass) {
  if (pass.leader == nullptr) return;
  if (!IsCondemned(pass.status, *pass.leader)) {
    const std::optional<ObservedLink>& link = pass.observed.link;
    if (!link.has_value() || link->pod_uid != pass.leader->uid) return;
    const absl::Duration limit = CoordinatorSilenceLimit(pass, link->heard);
    if (link->silent < limit) {
      pass.RequeueAfter(limit - link->silent + absl::Milliseconds(5));
      return;
    }
    NoteSilenceOf(pass, pass.leader->node);
    GiveUpCoordinator(pass, "it answers neither its stream nor a new call");
    return;
  }
  Drop(pass);
}

}  // namespace starling::trainingjob
