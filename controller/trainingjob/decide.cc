// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/decide.h"

#include <utility>

#include "controller/trainingjob/pass.h"
#include "controller/trainingjob/policies.h"
#include "google/protobuf/util/message_differencer.h"

namespace starling::trainingjob {
namespace {

void EndJob(Pass& pass) {
  using Policy = void (*)(Pass&);
  static constexpr Policy kEnds[] = {SucceedWithResult,   FailInvalidSpec,    FailWithTraining,
                                     FailByRestartPolicy, FailByBackoffLimit, FailByDeadline};
  for (const Policy end : kEnds) {
    if (!pass.Finished()) end(pass);
  }
}

void RunJob(Pass& pass) {
  EnsureObjects(pass);
  RemoveEndedPods(pass);
  GiveUpSilentWorkers(pass);
  EnsureCoordinator(pass);
  ScaleWorkers(pass);
}

// The status without what changes all the time.
v1alpha1::TrainingJobStatus Milestones(v1alpha1::TrainingJobStatus status) {
  status.clear_progress();
  status.clear_goodput();
  status.clear_last_checkpoint();
  return status;
}

bool Equal(const google::protobuf::Message& a, const google::protobuf::Message& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

// Milestones are written at once, mere progress at most every so often.
void DecideWrite(Pass& pass) {
  const v1alpha1::TrainingJobStatus& before = pass.observed.status;
  if (Equal(before, pass.status)) return;
  if (!Equal(Milestones(before), Milestones(pass.status))) {
    pass.decision.write_status = true;
    return;
  }
  const absl::Duration left = pass.options.progress_interval - pass.observed.since_status_write;
  if (left <= absl::ZeroDuration()) {
    pass.decision.write_status = true;
  } else {
    pass.RequeueAfter(left);
  }
}

bool IsAtRest(const Pass& pass) {
  if (pass.Finished() || pass.UsablePods(Role::kWorker).empty()) return true;
  return pass.halt && pass.report != nullptr && pass.report->stopped();
}

}  // namespace

Decision Decide(const Observed& observed, const Options& options, absl::Time now) {
  Pass pass(observed, options, now);
  if (observed.deleting) {
    // Its pods go with it, by garbage collection; there is nothing left to want.
    pass.decision.status = observed.status;
    return std::move(pass.decision);
  }
  const bool was_finished = pass.Finished();
  FindLeader(pass);
  GrantIncarnation(pass);
  if (!was_finished) {
    GiveUpSilentCoordinator(pass);
    TakeProgress(pass);
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
  SetConditions(pass, held);
  Supervise(pass);
  DecideWrite(pass);
  pass.decision.at_rest = IsAtRest(pass);
  pass.decision.status = std::move(pass.status);
  return std::move(pass.decision);
}

}  // namespace starling::trainingjob
