// SPDX-License-Identifier: Apache-2.0
// restartPolicy, and what becomes of pods that ended or fell silent: replaced, by new ones.
#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

// The roles' exit code for bad configuration or data: trying again cannot help.
constexpr std::int64_t kBadConfiguration = 2;

v1alpha1::RestartPolicy PolicyOf(const Pass& pass, Role role) {
  const v1alpha1::ReplicaSpecs& roles = pass.observed.spec.replica_specs();
  if (role == Role::kCoordinator) return roles.coordinator().restart_policy();
  return roles.worker().restart_policy();
}

std::string WithLog(std::string message, const PodExit& exit) {
  if (!exit.message.empty()) absl::StrAppend(&message, ": ", exit.message);
  return message;
}

bool NeverHeard(const v1alpha1::MemberStatus& member) {
  return !member.in_view() && member.phase() == v1alpha1::PHASE_OUT && member.settled_step() == 0;
}

const v1alpha1::MemberStatus* MemberOf(const v1alpha1::CoordinatorReport& report,
                                       const ObservedPod& pod) {
  const v1alpha1::MemberStatus* newest = nullptr;
  for (const v1alpha1::MemberStatus& member : report.members()) {
    if (member.id().pod_uid() != pod.uid) continue;
    if (newest == nullptr || member.id().start() > newest->id().start()) newest = &member;
  }
  return newest;
}

// Returns whether it has been silent for too long, which is then on record.
bool CondemnIfSilent(Pass& pass, const ObservedPod& pod) {
  if (pass.report == nullptr || pod.phase != PodPhase::kRunning) return false;
  const v1alpha1::MemberStatus* member = MemberOf(*pass.report, pod);
  if (member == nullptr || member->connected()) return false;
  const absl::Duration limit =
      NeverHeard(*member) ? pass.options.worker_start : pass.options.worker_silence;
  const absl::Duration silent =
      absl::Seconds(member->silent_seconds()) + pass.observed.link->silent;
  if (silent < limit) {
    pass.RequeueAfter(limit - silent + absl::Milliseconds(5));
    return false;
  }
  v1alpha1::Incident incident;
  SetTime(incident.mutable_time(), pass.now);
  incident.set_reason(std::string(kWorkerLost));
  incident.set_pod(pod.name);
  incident.set_pod_uid(pod.uid);
  incident.set_message("it does not answer its coordinator; it is replaced");
  incident.set_detection_seconds(absl::ToDoubleSeconds(silent));
  AddIncident(pass, std::move(incident));
  return true;
}

}  // namespace

void FailByRestartPolicy(Pass& pass) {
  for (const ObservedPod& pod : pass.observed.pods) {
    if (!IsFailure(pass, pod) || pod.phase != PodPhase::kFailed) continue;
    PodExit exit;
    exit.code = 1;
    if (pod.exit.has_value()) exit = *pod.exit;
    if (exit.code == kBadConfiguration && exit.signal == 0) {
      FinishJob(
          pass, false, "BadConfiguration",
          WithLog(absl::StrCat(pod.name, " cannot run with this configuration or data"), exit));
      return;
    }
    const v1alpha1::RestartPolicy policy = PolicyOf(pass, pod.role);
    const bool own_exit = exit.signal == 0 && exit.code >= 1 && exit.code <= 127;
    if (policy == v1alpha1::RESTART_POLICY_NEVER ||
        (policy == v1alpha1::RESTART_POLICY_EXIT_CODE && own_exit)) {
      FinishJob(pass, false, "PodFailed",
                WithLog(absl::StrCat(pod.name, " ended with code ", exit.code,
                                     ", which its restartPolicy does not restart"),
                        exit));
      return;
    }
  }
}

void RemoveEndedPods(Pass& pass) {
  for (const ObservedPod& pod : pass.observed.pods) {
    if (!pod.Terminated() || pod.terminating) continue;
    const bool counts = IsFailure(pass, pod) || (pod.disrupted && pod.reason != kNodeShutdown);
    if (counts && !IsRecorded(pass.status, pod)) continue;
    pass.Reason(absl::StrCat(pod.name, " has ended"));
    pass.Delete(pod, 0);
  }
}

void GiveUpSilentWorkers(Pass& pass) {
  for (const ObservedPod* pod : pass.UsablePods(Role::kWorker)) {
    if (!IsCondemned(pass.status, *pod) && !CondemnIfSilent(pass, *pod)) continue;
    pass.lost.insert(pod->uid);
    pass.Delete(*pod, 1);
  }
}

}  // namespace starling::trainingjob
