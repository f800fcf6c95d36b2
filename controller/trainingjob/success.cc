// SPDX-License-Identifier: Apache-2.0
// Success and failure as training itself tells them. Only the incarnation in the status is
// believed: an old coordinator may still lead members that cannot hear the new one.
#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {

void SucceedWithResult(Pass& pass) {
  if (pass.report == nullptr || !pass.report->training().has_result()) return;
  *pass.status.mutable_result() = pass.report->training().result();
  pass.status.mutable_result()->set_seconds(ActiveSeconds(pass));
  const v1alpha1::Result& result = pass.status.result();
  std::string message = absl::StrCat("trained ", result.steps(), " steps");
  if (result.has_target_reached()) {
    absl::StrAppend(&message, result.target_reached() ? "; the target is reached"
                                                      : "; the target is not reached");
  }
  const std::string warning = DurabilityWarning(pass);
  if (warning.empty()) return FinishJob(pass, true, "TrainingFinished", std::move(message));
  // It lies on disks that are about to go; what it was stays on record.
  pass.status.mutable_result()->mutable_model()->clear_uri();
  FinishJob(pass, true, kCheckpointNotDurable, absl::StrCat(message, "; ", warning));
}

void FailWithTraining(Pass& pass) {
  if (pass.report == nullptr || pass.report->training().failure().empty()) return;
  FinishJob(pass, false, "TrainingFailed", pass.report->training().failure());
}

}  // namespace starling::trainingjob
