// SPDX-License-Identifier: Apache-2.0
// How far training is, from reports of the incarnation in the status alone.
#include <algorithm>

#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {

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
  if (training.has_progress()) *pass.status.mutable_progress() = training.progress();
  if (training.has_checkpoint()) *pass.status.mutable_last_checkpoint() = training.checkpoint();
  if (!training.goodput().empty()) *pass.status.mutable_goodput() = training.goodput();
}

}  // namespace starling::trainingjob
