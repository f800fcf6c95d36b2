// SPDX-License-Identifier: Apache-2.0
// suspend: save a checkpoint, let all pods go, wait.
//
// The condition Suspended is Unknown while that is under way and True once no pod is left. What has
// begun is completed even if the user changes his mind: a half-stopped job serves nobody, and a
// spec that was edited in between must not meet pods of the old one. For the same reason pods of a
// frozen spec that is not the job's any more are let go before new ones are made.
//
// A checkpoint that cannot be written, on a full disk or at a path that nobody may write to, is
// waited for as long as haltTimeout and no longer, whoever would write it, workers or servers: then
// the pods go all the same, and the condition says what is lost and where room is wanted.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

bool IsStale(const Pass& pass) {
  const ObservedConfig* newest = nullptr;
  for (const ObservedConfig& config : pass.observed.configs) {
    if (newest == nullptr || config.generation > newest->generation) newest = &config;
  }
  return newest != nullptr && !newest->current && !pass.observed.pods.empty();
}

bool HasReason(const Pass& pass, std::string_view reason) {
  const v1alpha1::Condition* suspended = FindCondition(pass.status, "Suspended");
  return suspended != nullptr && suspended->reason() == reason;
}

// What stands where checkpoints should lie, for people.
std::string PlaceOfCheckpoints(const Pass& pass) {
  const std::string& uri = pass.observed.spec.checkpoint().uri();
  return uri.empty() ? "in the job's own folder (checkpoint.uri is not set)"
                     : absl::StrCat("at ", uri);
}

std::string NotWritten(const Pass& pass) {
  const v1alpha1::CheckpointStatus& newest = pass.status.last_checkpoint();
  return absl::StrCat(
      "no checkpoint was written ", PlaceOfCheckpoints(pass), " within ",
      absl::FormatDuration(pass.options.halt_timeout), "; training will go on from ",
      newest.has_name() ? absl::StrCat("the newest one before, ", newest.name()) : "step 0",
      ". To do: ", std::string(RemedyOf(kCheckpointNotWritten)));
}

void Begin(Pass& pass) {
  // Given up already: that stays on record until the job goes on.
  if (HasReason(pass, kCheckpointNotWritten)) return;
  const double active = ActiveSeconds(pass);
  if (SetCondition(pass, "Suspended", "Unknown", "Suspending", "waiting for a checkpoint")) {
    pass.status.set_active_seconds(active);
    pass.Reason("suspension begins");
  }
}

bool WasLost(const Pass& pass) { return HasReason(pass, kCheckpointNotDurable); }

// Training will begin at step 0: new steps are counted from there.
void ForgetTraining(Pass& pass) {
  pass.status.clear_last_checkpoint();
  pass.status.set_failures(0);
  pass.status.set_failures_since_step(0);
}

void Complete(Pass& pass) {
  const double active = ActiveSeconds(pass);
  const bool first = ConditionStatus(pass.status, "Suspended") != "True";
  const Queueing& queueing = pass.observed.queueing;
  std::string reason = "JobSuspended";
  std::string message = "no pod is left";
  if (!pass.observed.spec.run_policy().suspend() && queueing.hold) {
    reason = queueing.reason.empty() ? "Queued" : queueing.reason;
    message = queueing.message;
  }
  // Only where there was something to lose.
  const bool lost =
      !pass.observed.checkpoint_durable && pass.status.has_start_time() && (first || WasLost(pass));
  const bool not_written = HasReason(pass, kCheckpointNotWritten);
  if (lost) {
    reason = std::string(kCheckpointNotDurable);
    message = DurabilityWarning(pass);
    ForgetTraining(pass);
  } else if (not_written) {
    reason = std::string(kCheckpointNotWritten);
    message = FindCondition(pass.status, "Suspended")->message();
  }
  SetCondition(pass, "Suspended", "True", reason, message);
  if (!first) return;
  pass.status.set_active_seconds(active);
  pass.Event(lost || not_written, "Suspended", "Suspend",
             lost || not_written ? message : "training is saved and all pods are released");
}

// Who waited in vain says so while it can still be seen that somebody was there to save.
void GiveUpSaving(Pass& pass) {
  if (HasReason(pass, kCheckpointNotWritten)) return;
  std::string message = NotWritten(pass);
  SetCondition(pass, "Suspended", "Unknown", kCheckpointNotWritten, message);
  pass.Event(true, kCheckpointNotWritten, "Suspend", std::move(message));
}

// Steps that a checkpoint would hold.
bool HasSomethingToSave(const Pass& pass) {
  return pass.status.progress().step() > 0 ||
         (pass.report != nullptr && pass.report->settled_step() > 0);
}

// Halted and saved, or nobody left to wait for.
bool MayRelease(Pass& pass) {
  const bool led = pass.leader != nullptr || pass.standby != nullptr;
  if (!led || pass.UsableMembers().empty()) return true;
  if (pass.report != nullptr && pass.report->stopped()) return true;
  const absl::Time limit = ToTime(FindCondition(pass.status, "Suspended")->last_transition_time()) +
                           pass.options.halt_timeout;
  if (pass.now >= limit) {
    if (HasSomethingToSave(pass)) GiveUpSaving(pass);
    return true;
  }
  pass.RequeueAt(limit);
  // Pods that end now leave nobody to wait for.
  return std::none_of(pass.observed.pods.begin(), pass.observed.pods.end(),
                      [](const ObservedPod& pod) { return pod.phase == PodPhase::kRunning; });
}

}  // namespace

void DeleteAllPods(Pass& pass) {
  bool members = false;
  for (const ObservedPod& pod : pass.observed.pods) {
    if (!resources::IsMember(pod.role) || pod.Terminated()) continue;
    members = true;
    if (pod.Live()) pass.Delete(pod, std::nullopt);
  }
  if (members) return;
  for (const ObservedPod& pod : pass.observed.pods) {
    if (pod.Live()) pass.Delete(pod, std::nullopt);
  }
}

bool HoldSuspended(Pass& pass) {
  const bool wanted = pass.observed.spec.run_policy().suspend() || pass.observed.queueing.hold;
  const bool under_way = ConditionStatus(pass.status, "Suspended") == "Unknown";
  if (!wanted && !under_way && !IsStale(pass)) {
    if (ConditionStatus(pass.status, "Suspended") == "True") {
      SetCondition(pass, "Suspended", "False", "JobResumed", "training goes on");
      pass.Event(false, "Resumed", "Resume",
                 pass.observed.checkpoint_durable ? "training goes on from the newest checkpoint"
                                                  : "training begins again at step 0");
    }
    return false;
  }
  if (pass.observed.pods.empty()) {
    Complete(pass);
    if (!wanted) pass.RequeueAfter(absl::ZeroDuration());
    return true;
  }
  Begin(pass);
  pass.halt = true;
  for (const ObservedPod& pod : pass.observed.pods) {
    if (pod.Terminated() && !pod.terminating) pass.Delete(pod, 0);
  }
  if (MayRelease(pass)) DeleteAllPods(pass);
  return true;
}

}  // namespace starling::trainingjob
