// SPDX-License-Identifier: Apache-2.0
// restartPolicy, and what becomes of pods that ended or fell silent: replaced, by new ones.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/log/words.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

// The roles' exit code for bad configuration or data: trying again cannot help.
constexpr std::int64_t kBadConfiguration = 2;
// A program of one's own imports and reads what it needs before it comes to its loop, and nothing
// is heard of it until then.
constexpr absl::Duration kProgramStart = absl::Minutes(10);

v1alpha1::RestartPolicy PolicyOf(const Pass& pass, Role role) {
  const v1alpha1::ReplicaSpecs& roles = pass.observed.spec.replica_specs();
  if (role == Role::kCoordinator) return roles.coordinator().restart_policy();
  if (role == Role::kParameterServer) return roles.parameter_server().restart_policy();
  return roles.worker().restart_policy();
}

std::string WithLog(std::string message, const PodExit& exit) {
  const std::string words = log::WordsOf(exit.message);
  if (!words.empty()) absl::StrAppend(&message, ": ", words);
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

absl::Duration StartLimit(const Pass& pass, const ObservedPod& pod) {
  const bool own_loop = pod.role == Role::kWorker && pass.observed.spec.workload().has_pytorch();
  return own_loop ? kProgramStart : pass.options.worker_start;
}

// A pod that this coordinator has not heard of for `since`, though it runs: one that was young then
// may be starting yet; an old one has been with another coordinator and would have answered by now.
absl::Duration UnheardLimit(const Pass& pass, const ObservedPod& pod, absl::Duration since) {
  const absl::Duration age_then = std::max(absl::ZeroDuration(), pass.AgeOf(pod) - since);
  return std::max(pass.options.worker_silence * 2, StartLimit(pass, pod) - age_then);
}

struct Silence {
  absl::Duration since;
  absl::Duration limit;
};

// Nothing: it answers, or cannot be expected to.
std::optional<Silence> SilenceOf(Pass& pass, const ObservedPod& pod) {
  if (pass.report == nullptr || pod.phase != PodPhase::kRunning) return std::nullopt;
  const v1alpha1::MemberStatus* member = MemberOf(*pass.report, pod);
  if (member == nullptr) {
    pass.decision.unheard.push_back(pod.uid);
    const absl::Duration since = pass.now - pod.unheard_since.value_or(pass.now);
    return Silence{since, UnheardLimit(pass, pod, since)};
  }
  if (member->connected()) return std::nullopt;
  return Silence{absl::Seconds(member->silent_seconds()) + pass.LinkOf(pass.leader)->silent,
                 NeverHeard(*member) ? StartLimit(pass, pod) : pass.options.worker_silence};
}

// Whether all members are silent at once, on other nodes than their coordinator's: then it is the
// coordinator that is cut off, and giving the members up would throw all state away.
bool IsCutOff(const Pass& pass, const std::vector<const ObservedPod*>& members) {
  if (pass.report == nullptr || members.size() < 2) return false;
  return std::all_of(members.begin(), members.end(), [&](const ObservedPod* pod) {
    const v1alpha1::MemberStatus* member = MemberOf(*pass.report, *pod);
    return member != nullptr && !member->connected() && !NeverHeard(*member) &&
           absl::Seconds(member->silent_seconds()) * 2 >= pass.options.worker_silence &&
           !pod->node.empty() && pod->node != pass.leader->node;
  });
}

// Returns whether it has been silent for too long, which is then on record.
bool CondemnIfSilent(Pass& pass, const ObservedPod& pod) {
  const std::optional<Silence> silence = SilenceOf(pass, pod);
  if (!silence.has_value()) return false;
  if (silence->since < silence->limit) {
    pass.RequeueAfter(silence->limit - silence->since + absl::Milliseconds(5));
    return false;
  }
  NoteSilenceOf(pass, pod.node);
  v1alpha1::Incident incident;
  SetTime(incident.mutable_time(), pass.now);
  incident.set_reason(std::string(pod.role == Role::kWorker ? kWorkerLost : kServerLost));
  incident.set_pod(pod.name);
  incident.set_pod_uid(pod.uid);
  incident.set_message("it does not answer its coordinator; it is replaced");
  incident.set_detection_seconds(absl::ToDoubleSeconds(silence->since));
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
    if (exit.code == kBadConfiguration && exit.signal == 0 && !pass.OwnContainer()) {
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

void GiveUpSilentMembers(Pass& pass) {
  const std::vector<const ObservedPod*> members = pass.UsableMembers();
  if (IsCutOff(pass, members)) {
    GiveUpCoordinator(pass, pass.HasServers()
                                ? "all members are silent to it: it may be cut off from them"
                                : "all workers are silent to it: it may be cut off from them");
    return;
  }
  for (const ObservedPod* pod : members) {
    if (!IsCondemned(pass.status, *pod) && !CondemnIfSilent(pass, *pod)) continue;
    pass.Delete(*pod, 1);
  }
}

}  // namespace starling::trainingjob
