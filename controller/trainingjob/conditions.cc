// SPDX-License-Identifier: Apache-2.0
// The status as people and scripts read it: conditions, state, counts.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

bool IsTrue(const Pass& pass, std::string_view type) {
  return ConditionStatus(pass.status, type) == "True";
}

bool IsHeard(const v1alpha1::CoordinatorReport& report, const ObservedPod& pod) {
  return std::any_of(report.members().begin(), report.members().end(),
                     [&pod](const auto& member) { return member.id().pod_uid() == pod.uid; });
}

// Whether steps may go on under the last view that nobody can tell of: the coordinator is being
// replaced, or is new and has not heard of all workers yet. Until it has, it publishes no view.
bool MayTrainUnheard(const Pass& pass) {
  const v1alpha1::CoordinatorReport* report = pass.report;
  if (report != nullptr && report->newest_view() >> 32U == report->incarnation()) return false;
  const auto workers = pass.UsablePods(Role::kWorker);
  return std::any_of(workers.begin(), workers.end(), [report](const ObservedPod* pod) {
    return pod->phase == PodPhase::kRunning && (report == nullptr || !IsHeard(*report, *pod));
  });
}

// The short sync at the start of a view is training too.
bool Trains(const Pass& pass) {
  if (pass.OwnContainer()) return RoundRuns(pass);
  const bool before = IsTrue(pass, "Running");
  if (before && MayTrainUnheard(pass)) return true;
  if (pass.report == nullptr) return false;
  const auto& members = pass.report->members();
  const bool led =
      std::any_of(members.begin(), members.end(), [](const v1alpha1::MemberStatus& member) {
        // A new coordinator knows that they run before it knows in which view.
        return member.connected() && (member.in_view() || member.phase() == v1alpha1::PHASE_RUN);
      });
  return led && (pass.report->view_synced() || before);
}

// Workers that have only started may have ended by the time that this is written.
bool OnlyStarted(Pass& pass) {
  if (!pass.OwnContainer()) return false;
  absl::Time started = absl::InfinitePast();
  for (const ObservedPod* pod : pass.UsablePods(Role::kWorker)) {
    started = std::max(started, pod->started);
  }
  const absl::Duration left = started + pass.options.round_settle - pass.now;
  // A node's clock may be ahead of ours.
  if (started > pass.now || left <= absl::ZeroDuration()) return false;
  pass.RequeueAfter(left);
  return true;
}

void SetRunning(Pass& pass, bool held) {
  if (pass.Finished() || held) {
    const std::string_view reason = pass.Finished() ? "JobFinished" : "JobSuspended";
    SetCondition(pass, "Running", "False", reason, "");
    if (FindCondition(pass.status, "Restarting") != nullptr) {
      SetCondition(pass, "Restarting", "False", reason, "");
    }
    return;
  }
  const bool before = IsTrue(pass, "Running");
  if (pass.observed.shutting_down && IsAtRest(pass)) {
    SetCondition(pass, "Running", "False", "ControllerStopped",
                 "training is saved; it goes on when the controller is started again");
    return;
  }
  if (Trains(pass) && (before || !OnlyStarted(pass))) {
    if (SetCondition(pass, "Running", "True", "Training", "workers train")) {
      pass.Event(false, "Running", "Train", "training runs");
    }
    if (FindCondition(pass.status, "Restarting") != nullptr) {
      SetCondition(pass, "Restarting", "False", "Training", "workers train");
    }
    return;
  }
  if (before) {
    SetCondition(pass, "Restarting", "True", "Recovering", "training stopped and is brought back");
    pass.Event(true, "Restarting", "Recover", "training stopped and is brought back");
  }
  std::string waiting = pass.OwnContainer() ? "waiting for the workers"
                                            : "waiting for the coordinator and the workers";
  if (pass.report != nullptr && !pass.report->waiting().empty()) waiting = pass.report->waiting();
  SetCondition(pass, "Running", "False", IsTrue(pass, "Restarting") ? "Recovering" : "Starting",
               std::move(waiting));
}

std::string_view StateWord(const Pass& pass) {
  for (const std::string_view type :
       {"Failed", "Succeeded", "Suspended", "Restarting", "Running"}) {
    if (IsTrue(pass, type)) return type;
  }
  // On its way into suspension it is neither: the last word stands.
  if (ConditionStatus(pass.status, "Suspended") == "Unknown" && !pass.status.state().empty()) {
    return pass.observed.status.state();
  }
  return "Pending";
}

void CountPods(Pass& pass) {
  auto& roles = *pass.status.mutable_replica_statuses();
  // A job that was edited while suspended may have had servers.
  if (!pass.HasServers()) roles.erase(std::string(resources::RoleField(Role::kParameterServer)));
  for (const Role role : resources::RolesOf(pass.observed.spec)) {
    (void)roles[std::string(resources::RoleField(role))];
  }
  for (auto& [name, counts] : roles) {
    counts.set_active(0);  // what else it says, memory, stays
    counts.set_ready(0);
    counts.set_succeeded(0);
    counts.set_failed(0);
  }
  for (const ObservedPod& pod : pass.observed.pods) {
    v1alpha1::ReplicaStatus& counts = roles[std::string(resources::RoleField(pod.role))];
    if (pod.phase == PodPhase::kSucceeded) counts.set_succeeded(counts.succeeded() + 1);
    if (pod.phase == PodPhase::kFailed) counts.set_failed(counts.failed() + 1);
    if (pod.Live()) counts.set_active(counts.active() + 1);
    if (pod.Live() && pod.ready) counts.set_ready(counts.ready() + 1);
  }
}

}  // namespace

void SetConditions(Pass& pass, bool held) {
  SetCondition(pass, "Created", "True", "JobCreated", "the controller has taken the job");
  SetRunning(pass, held);
  SetStandbyReady(pass);
  CountPods(pass);
  if (!pass.status.has_replicas()) {
    pass.status.set_replicas(WantedWorkers(pass).replicas);
  }
  pass.status.set_selector(resources::RoleSelector(pass.observed.job.name, Role::kWorker));
  pass.status.set_observed_generation(pass.observed.generation);
  pass.status.set_state(std::string(StateWord(pass)));
}

}  // namespace starling::trainingjob
