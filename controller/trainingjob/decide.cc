// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/decide.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "controller/trainingjob/pass.h"
#include "controller/trainingjob/policies.h"
#include "google/protobuf/util/message_differencer.h"

namespace starling::trainingjob {
namespace {

void EndJob(Pass& pass) {
  using Policy = void (*)(Pass&);
  static constexpr Policy kEnds[] = {SucceedWithResult, SucceedWithWorkers,  FailInvalidSpec,
                                     FailWithTraining,  FailByRestartPolicy, FailByBackoffLimit,
                                     FailByDeadline};
  for (const Policy end : kEnds) {
    if (!pass.Finished()) end(pass);
  }
}

void RunJob(Pass& pass) {
  ForgetNodes(pass);
  EnsureObjects(pass);
  RetryAvoidingPods(pass);
  if (pass.OwnContainer()) return RunContainerJob(pass);
  RemoveEndedPods(pass);
  ReplaceLeavingCoordinator(pass);
  GiveUpSilentMembers(pass);
  EnsureCoordinator(pass);
  EnsureStandby(pass);
  ScaleServers(pass);
  ScaleWorkers(pass);
}

// The status without what changes all the time.
v1alpha1::TrainingJobStatus WithoutProgress(v1alpha1::TrainingJobStatus status) {
  status.clear_progress();
  status.clear_goodput();
  status.clear_last_checkpoint();
  return status;
}

// The same without what only follows from something else by and by.
v1alpha1::TrainingJobStatus Milestones(v1alpha1::TrainingJobStatus status) {
  for (auto& [role, counts] : *status.mutable_replica_statuses()) {
    counts.clear_active();
    counts.clear_ready();
    counts.clear_succeeded();
  }
  return WithoutProgress(std::move(status));
}

bool Equal(const google::protobuf::Message& a, const google::protobuf::Message& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

// The same for a job at a time, different for jobs that started together.
absl::Duration ProgressInterval(const Pass& pass) {
  constexpr std::uint64_t kShares = 1000;
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : pass.observed.job.uid) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  hash ^= static_cast<std::uint64_t>(pass.observed.status.progress().step()) * 2654435761ULL;
  return pass.options.progress_interval +
         pass.options.progress_jitter * (static_cast<double>(hash % kShares) / kShares);
}

// The coordinator, or the members of a job that has stopped and for whom it speaks, are about to
// end. What it reports now is known nowhere else (such as the job's last checkpoint, and who wrote
// it).
bool HearsLastWords(const Pass& pass) {
  const auto& actions = pass.decision.actions;
  return pass.report != nullptr &&
         std::any_of(actions.begin(), actions.end(), [&pass](const Action& action) {
           const auto* removed = std::get_if<DeletePod>(&action);
           return removed != nullptr &&
                  (pass.report->stopped() || removed->uid == pass.leader->uid);
         });
}

// A job whose first round is starting or running: any one of its pods tells that. Everything else
// in the status is stored nowhere else.
bool IsKnownFromPods(const Pass& pass) {
  const auto& conditions = pass.status.conditions();
  const bool first = pass.observed.status_unwritten || pass.observed.status.conditions().empty();
  return first && pass.OwnContainer() && pass.status.round().number() == 1 &&
         pass.status.incidents().empty() &&
         std::all_of(conditions.begin(), conditions.end(), [](const auto& condition) {
           return condition.type() == "Created" || condition.type() == "Running";
         });
}

// Milestones and final states are written immediately; counts and progress at intervals.
void DecideWrite(Pass& pass) {
  const v1alpha1::TrainingJobStatus& before = pass.observed.status;
  pass.decision.status_may_wait = IsKnownFromPods(pass);
  if (pass.observed.status_unwritten) {
    pass.decision.write_status = true;
    return;
  }
  if (Equal(before, pass.status)) return;
  if (HearsLastWords(pass) || !Equal(Milestones(before), Milestones(pass.status))) {
    pass.decision.write_status = true;
    return;
  }
  const bool counts = !Equal(WithoutProgress(before), WithoutProgress(pass.status));
  const absl::Duration left = (counts ? pass.options.counts_interval : ProgressInterval(pass)) -
                              pass.observed.since_status_write;
  if (left <= absl::ZeroDuration()) {
    pass.decision.write_status = true;
  } else {
    pass.RequeueAfter(left);
  }
}

// Another controller's: it may hold anything, and nothing of it is ours.
bool IsManagedElsewhere(const Observed& observed) {
  const std::string& manager = observed.spec.run_policy().managed_by();
  return !manager.empty() && manager != kManager;
}

}  // namespace

bool IsAtRest(const Pass& pass) {
  if (pass.Finished() || pass.OwnContainer()) return true;
  if (pass.UsableMembers().empty()) return true;
  return pass.halt && pass.report != nullptr && pass.report->stopped();
}

Options ClusterOptions() {
  Options options;
  options.coordinator_start = absl::Seconds(30);
  options.worker_silence = absl::Seconds(2);
  options.progress_interval = absl::Seconds(10);
  options.round_settle = absl::Seconds(1);
  options.counts_interval = absl::Seconds(10);
  options.progress_jitter = absl::Seconds(2);
  options.budgets = true;
  options.endpoints = true;
  options.avoid_nodes = true;
  options.create_width = 16;
  options.first_status_wait = absl::Seconds(10);
  options.look_again = absl::Seconds(5);
  return options;
}

Decision Decide(const Observed& observed, const Options& options, absl::Time now) {
  Pass pass(observed, options, now);
  if (observed.deleting || IsManagedElsewhere(observed)) {
    // Of one that is deleted the pods go by garbage collection; there is nothing left to want.
    pass.decision.status = observed.status;
    return std::move(pass.decision);
  }
  const bool was_finished = pass.Finished();
  FindLeaving(pass);
  FindLeader(pass);
  GrantIncarnation(pass);
  if (!was_finished) {
    GiveUpSilentCoordinator(pass);
    GiveUpSilentStandby(pass);
    GrantStandby(pass);
    TakeProgress(pass);
    AnswerCheckpointRequest(pass);
    RecordIncidents(pass);
    EndJob(pass);
  }
  bool held = false;
  if (pass.Finished()) {
    CleanPods(pass);
    ExpireJob(pass);
  } else if (observed.shutting_down) {
    pass.halt = true;
  } else {
    held = HoldSuspended(pass);
    if (!held) RunJob(pass);
  }
  AnswerTraceRequest(pass);
  ReleaseGoneNodes(pass);
  FindProblems(pass, held);
  SetConditions(pass, held);
  Supervise(pass);
  PublishEndpoints(pass);
  DecideWrite(pass);
  pass.decision.at_rest = IsAtRest(pass);
  pass.decision.status = std::move(pass.status);
  return std::move(pass.decision);
}

}  // namespace starling::trainingjob
