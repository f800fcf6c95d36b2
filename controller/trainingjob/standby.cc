// SPDX-License-Identifier: Apache-2.0
// A coordinator that waits for the one that leads to fall silent, and then leads without asking:
// that no controller is there to be asked is what it is for (docs/design/protocol.md, B1 to B4).
//
// It is granted its number ahead of time, by compare-and-swap in the status like every other. From
// then on the leader may be told by it alone who trains together; so whoever has had a standby goes
// on without it under a higher number only, be it that the standby's pod has gone, or only its
// process. Numbers are never given twice: the next one is above both.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

constexpr char kStandbyReady[] = "StandbyReady";
// Longer than a coordinator that lives is silent to its standby.
constexpr double kSilentSeconds = 0.5;
constexpr absl::Duration kLookAgain = absl::Milliseconds(500);

bool LeaderHasEnded(const Pass& pass) {
  const auto& pods = pass.observed.pods;
  return std::none_of(pods.begin(), pods.end(), [&](const ObservedPod& pod) {
    return pod.uid == pass.status.coordinator().pod_uid() && !pod.Terminated();
  });
}

// The process that the status names waits as it was told to, or could not yet say so.
bool IsThere(const Pass& pass) {
  const v1alpha1::StandbyGrant& standby = pass.status.coordinator().standby();
  if (pass.standby == nullptr || pass.standby->uid != standby.pod_uid()) return false;
  const v1alpha1::CoordinatorReport* report = pass.ReportOf(pass.standby);
  return report == nullptr || report->boot_id() == standby.boot_id();
}

bool IsArmed(const Pass& pass, const ObservedPod& pod) {
  const v1alpha1::CoordinatorGrant& grant = pass.status.coordinator();
  const v1alpha1::CoordinatorReport* report = pass.ReportOf(&pod);
  if (report == nullptr || report->boot_id() != grant.standby().boot_id()) return false;
  const auto granted = static_cast<std::uint64_t>(grant.standby().incarnation());
  return report->standby().armed() && report->standby().incarnation() == granted &&
         grant.standby().follows() == grant.incarnation();
}

void NotePromotion(Pass& pass, const ObservedPod& pod) {
  v1alpha1::Incident incident;
  SetTime(incident.mutable_time(), pass.now);
  incident.set_reason("CoordinatorTakenOver");
  incident.set_pod(pod.name);
  incident.set_pod_uid(pod.uid);
  incident.set_message(
      "it stood by, and leads since the coordinator before it fell silent; no controller had to "
      "say so");
  AddIncident(pass, std::move(incident));
}

}  // namespace

bool WantsStandby(const Pass& pass) {
  return !pass.OwnContainer() && pass.observed.spec.replica_specs().coordinator().standby();
}

void PromoteStandby(Pass& pass) {
  if (!pass.status.coordinator().has_standby()) return;
  v1alpha1::CoordinatorGrant& grant = *pass.status.mutable_coordinator();
  const v1alpha1::StandbyGrant standby = grant.standby();
  if (standby.incarnation() <= grant.incarnation()) return;  // another one was granted meanwhile
  for (const ObservedPod* pod : pass.UsablePods(Role::kCoordinator)) {
    const v1alpha1::CoordinatorReport* report = pass.ReportOf(pod);
    const auto granted = static_cast<std::uint64_t>(standby.incarnation());
    if (report == nullptr || report->boot_id() != standby.boot_id() ||
        report->incarnation() != granted || report->superseded()) {
      continue;
    }
    grant.set_incarnation(standby.incarnation());
    grant.set_boot_id(standby.boot_id());
    grant.set_pod_uid(pod->uid);
    grant.clear_standby();
    pass.Reason(absl::StrCat(pod->name, " leads, incarnation ", grant.incarnation(),
                             ", since the coordinator before it fell silent"));
    if (!pass.Finished()) NotePromotion(pass, *pod);
    return;
  }
}

bool StandbyMayLead(Pass& pass, const ObservedPod& pod) {
  const ObservedLink* link = pass.LinkOf(&pod);
  const bool unheard = link == nullptr || !link->heard;  // for how long is judged elsewhere
  const bool leads_soon =
      !unheard && IsArmed(pass, pod) &&
      (LeaderHasEnded(pass) || link->report.standby().silent_seconds() >= kSilentSeconds);
  if (leads_soon) pass.RequeueAfter(kLookAgain);
  return unheard || leads_soon;
}

// One that has led begins nothing anew: its members are told so by whoever leads now.
bool FitsAsStandby(const Pass& pass, const ObservedPod& pod) {
  if (!WantsStandby(pass) || IsCondemned(pass.status, pod)) return false;
  const v1alpha1::CoordinatorReport* report = pass.ReportOf(&pod);
  return report == nullptr || (report->incarnation() == 0 && !report->superseded());
}

void GiveUpSilentStandby(Pass& pass) {
  const ObservedLink* link = pass.LinkOf(pass.standby);
  if (link == nullptr) return;
  const absl::Duration limit = SilenceLimit(pass, *pass.standby, link->heard);
  if (link->silent < limit) {
    pass.RequeueAfter(limit - link->silent + absl::Milliseconds(5));
    return;
  }
  NoteSilenceOf(pass, pass.standby->node);
  v1alpha1::Incident incident;
  SetTime(incident.mutable_time(), pass.now);
  incident.set_reason(std::string(kStandbyLost));
  incident.set_pod(pass.standby->name);
  incident.set_pod_uid(pass.standby->uid);
  incident.set_message(
      "it stood by, and answers neither its stream nor a new call; it is replaced");
  incident.set_detection_seconds(absl::ToDoubleSeconds(link->silent));
  AddIncident(pass, std::move(incident));
  pass.Delete(*pass.standby, 1);
  pass.standby = nullptr;
}

void GrantStandby(Pass& pass) {
  // Whoever leads next is granted a number above both.
  if (pass.leader == nullptr) return;
  const bool had = pass.status.coordinator().has_standby();
  if (had && !IsThere(pass)) {
    v1alpha1::CoordinatorGrant& grant = *pass.status.mutable_coordinator();
    if (grant.standby().follows() == grant.incarnation()) {
      grant.set_incarnation(NextIncarnation(grant));
      pass.report = nullptr;
      pass.Reason(absl::StrCat(pass.leader->name, " is granted incarnation ", grant.incarnation(),
                               " anew: its standby has gone"));
    }
    grant.clear_standby();
  }
  const v1alpha1::CoordinatorReport* report = pass.ReportOf(pass.standby);
  if (pass.report == nullptr || report == nullptr || report->boot_id().empty()) return;
  v1alpha1::CoordinatorGrant& grant = *pass.status.mutable_coordinator();
  if (grant.standby().follows() == grant.incarnation()) return;
  const std::int64_t next = NextIncarnation(grant);
  v1alpha1::StandbyGrant& standby = *grant.mutable_standby();
  standby.set_incarnation(next);
  standby.set_boot_id(report->boot_id());
  standby.set_pod_uid(pass.standby->uid);
  standby.set_follows(grant.incarnation());
  pass.Reason(absl::StrCat(pass.standby->name, " stands by as incarnation ", next));
}

void EnsureStandby(Pass& pass) {
  if (!WantsStandby(pass) || pass.report == nullptr || pass.standby != nullptr) return;
  if (IsDelayed(pass)) return;
  MakePod(pass, Role::kCoordinator, FreeIndexes(pass, Role::kCoordinator, 1).front(), {});
}

void SetStandbyReady(Pass& pass) {
  if (!WantsStandby(pass)) return;
  if (pass.Finished()) {
    SetCondition(pass, kStandbyReady, "False", "JobFinished", "");
  } else if (pass.leader != nullptr && pass.standby != nullptr && IsArmed(pass, *pass.standby)) {
    SetCondition(pass, kStandbyReady, "True", "StandsBy",
                 absl::StrCat(pass.standby->name, " leads if ", pass.leader->name,
                              " falls silent, whether or not a controller is there"));
  } else {
    SetCondition(pass, kStandbyReady, "False", "StandbyStarting",
                 "a second coordinator is to take over, and is not ready yet");
  }
}

}  // namespace starling::trainingjob
