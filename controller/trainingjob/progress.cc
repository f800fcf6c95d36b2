// SPDX-License-Identifier: Apache-2.0
// How far training is, from reports of the incarnation in the status alone.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

// For the printer column: how far of how much, in the words of what ends the job.
std::string SummaryOf(const v1alpha1::Progress& progress, const v1alpha1::Stop& stop) {
  if (stop.has_steps() && !stop.has_epochs()) {
    return absl::StrCat("step ", progress.step(), "/", stop.steps());
  }
  if (!stop.has_epochs()) return absl::StrCat("epoch ", progress.epoch());
  return absl::StrCat("epoch ", progress.epoch(), "/", stop.epochs());
}

// Empty: it has none, or the pod is gone.
std::string NodeOf(const Pass& pass, const std::string& pod) {
  for (const ObservedPod& one : pass.observed.pods) {
    if (one.name == pod) return one.node;
  }
  return "";
}

}  // namespace

void TakeProgress(Pass& pass) {
  if (pass.report == nullptr) return;
  const v1alpha1::CoordinatorReport& report = *pass.report;
  const auto view = static_cast<std::int64_t>(report.newest_view());
  if (view > pass.status.newest_view()) pass.status.set_newest_view(view);
  // New steps, not steps trained again from a checkpoint, are what ends a row of failures.
  if (pass.status.failures() > 0 && report.settled_step() > pass.status.failures_since_step()) {
    pass.status.set_failures(0);
    pass.status.set_failures_since_step(report.settled_step());
  }
  const v1alpha1::TrainingReport& training = report.training();
  if (training.has_progress()) {
    v1alpha1::Progress& progress = *pass.status.mutable_progress();
    progress = training.progress();
    // The API server would refuse the whole status, the end of the job with it.
    if (progress.estimated_remaining().seconds() < 0 ||
        progress.estimated_remaining().nanos() < 0) {
      progress.clear_estimated_remaining();
    }
    for (v1alpha1::Straggler& straggler : *progress.mutable_stragglers()) {
      const std::string node = NodeOf(pass, straggler.pod());
      if (!node.empty()) straggler.set_node(node);
    }
    const v1alpha1::Stop& stop = pass.observed.spec.stop();
    progress.set_summary(SummaryOf(progress, stop));
    if (stop.has_epochs()) progress.set_total_epochs(stop.epochs());
  }
  if (training.has_checkpoint()) *pass.status.mutable_last_checkpoint() = training.checkpoint();
  if (!training.goodput().empty()) *pass.status.mutable_goodput() = training.goodput();
}

}  // namespace starling::trainingjob
