// SPDX-License-Identifier: Apache-2.0
// Which coordinator process leads, by the one rule of consensus that is ours: each process is
// granted an incarnation of its own by compare-and-swap in the status, keyed by its boot id.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

// The supervisor has started it again. Steps went on meanwhile, under the last view.
void NoteRestart(Pass& pass) {
  v1alpha1::Incident incident;
  SetTime(incident.mutable_time(), pass.now);
  incident.set_reason("CoordinatorRestarted");
  incident.set_pod(pass.leader->name);
  incident.set_pod_uid(pass.leader->uid);
  incident.set_message("its process ended and was started again; training went on");
  incident.set_recovery_seconds(absl::ToDoubleSeconds(pass.LinkOf(pass.leader)->outage));
  incident.set_repeated_steps(0);
  AddIncident(pass, std::move(incident));
  pass.status.set_restarts(pass.status.restarts() + 1);
}

// One second of grace, because it is not known whether a process is there to use it.
void Drop(Pass& pass) {
  pass.Delete(*pass.leader, 1);
  pass.leader = nullptr;
  pass.report = nullptr;
}

// How well a pod fits as the leader's: by what its process reports, before it has been heard by
// what the status says of its pod. Nothing: it is not to lead now.
std::optional<int> ClaimOf(Pass& pass, const ObservedPod& pod) {
  const v1alpha1::CoordinatorGrant& grant = pass.status.coordinator();
  const v1alpha1::CoordinatorReport* report = pass.ReportOf(&pod);
  if (report != nullptr && report->boot_id() == grant.boot_id()) return 3;
  if (pod.uid == grant.pod_uid()) return 2;
  if (pod.uid != grant.standby().pod_uid()) return 1;
  if (StandbyMayLead(pass, pod)) return std::nullopt;
  return 0;
}

void Grant(Pass& pass, const std::string& boot_id) {
  v1alpha1::CoordinatorGrant& grant = *pass.status.mutable_coordinator();
  grant.set_incarnation(NextIncarnation(grant));
  grant.set_boot_id(boot_id);
  grant.set_pod_uid(pass.leader->uid);
  if (grant.standby().pod_uid() == pass.leader->uid) grant.clear_standby();
  pass.Reason(absl::StrCat(pass.leader->name, " is granted incarnation ", grant.incarnation()));
}

}  // namespace

std::int64_t NextIncarnation(const v1alpha1::CoordinatorGrant& grant) {
  return std::max(grant.incarnation(), grant.standby().incarnation()) + 1;
}

// A controller that has just begun to lead has not heard of it yet; a pod that has had its time to
// start would have answered by now.
absl::Duration SilenceLimit(const Pass& pass, const ObservedPod& pod, bool heard) {
  if (heard) return pass.options.coordinator_silence;
  return std::max(pass.options.coordinator_silence * 2,
                  pass.options.coordinator_start - pass.AgeOf(pod));
}

void FindLeader(Pass& pass) {
  PromoteStandby(pass);
  const std::vector<const ObservedPod*> pods = pass.UsablePods(Role::kCoordinator);
  int best = -1;
  const ObservedPod* condemned = nullptr;
  for (const ObservedPod* pod : pods) {
    if (IsCondemned(pass.status, *pod)) {
      if (condemned == nullptr) condemned = pod;
    } else if (const std::optional<int> claim = ClaimOf(pass, *pod); claim.value_or(-1) > best) {
      best = *claim;
      pass.leader = pod;
    }
  }
  // One that was given up is still here only if its deletion failed: its successor leads.
  if (pass.leader == nullptr) pass.leader = condemned;
  for (const ObservedPod* pod : pods) {
    if (pod == pass.leader || !FitsAsStandby(pass, *pod)) continue;
    const bool is_known = pod->uid == pass.status.coordinator().standby().pod_uid();
    if (pass.standby == nullptr || is_known) pass.standby = pod;
  }
  for (const ObservedPod* pod : pods) {
    if (pod == pass.leader || pod == pass.standby) continue;
    pass.Reason(absl::StrCat(pod->name, " is a second coordinator"));
    pass.Delete(*pod, 1);
  }
}

void GrantIncarnation(Pass& pass) {
  const v1alpha1::CoordinatorReport* report = pass.ReportOf(pass.leader);
  if (report == nullptr || report->boot_id().empty()) return;
  const v1alpha1::CoordinatorGrant& grant = pass.status.coordinator();
  const std::uint64_t incarnation = static_cast<std::uint64_t>(grant.incarnation());
  if (report->boot_id() == grant.boot_id() && !report->superseded()) {
    if (report->incarnation() == incarnation) pass.report = report;
    return;
  }
  if (report->incarnation() == 0 && !report->superseded()) {
    const bool followed = pass.standby != nullptr && pass.standby->uid == grant.standby().pod_uid();
    if (followed && StandbyMayLead(pass, *pass.standby)) return;
    const bool in_place =
        !grant.boot_id().empty() && pass.LinkOf(pass.leader)->former_boot_id == grant.boot_id();
    if (in_place && !pass.Finished()) NoteRestart(pass);
    return Grant(pass, report->boot_id());
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
  incident.set_detection_seconds(absl::ToDoubleSeconds(pass.LinkOf(pass.leader)->silent));
  AddIncident(pass, std::move(incident));
  Drop(pass);
}

void GiveUpSilentCoordinator(Pass& pass) {
  if (pass.leader == nullptr) return;
  if (!IsCondemned(pass.status, *pass.leader)) {
    const ObservedLink* link = pass.LinkOf(pass.leader);
    if (link == nullptr) return;
    const absl::Duration limit = SilenceLimit(pass, *pass.leader, link->heard);
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
