// SPDX-License-Identifier: Apache-2.0
// The end of a job: it is written once and never changes afterwards.
#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {

void FinishJob(Pass& pass, bool succeeded, std::string_view reason, std::string message) {
  pass.status.set_active_seconds(ActiveSeconds(pass));
  SetTime(pass.status.mutable_completion_time(), pass.now);
  pass.Reason(message);
  SetCondition(pass, succeeded ? "Succeeded" : "Failed", "True", reason, message);
  pass.Event(!succeeded, reason, succeeded ? "Succeed" : "Fail", std::move(message));
}

std::string DurabilityWarning(const Pass& pass) {
  if (pass.observed.checkpoint_durable) return "";
  return absl::StrCat(std::string(MeaningOf(kCheckpointNotDurable)), "; ",
                      std::string(RemedyOf(kCheckpointNotDurable)));
}

void FailInvalidSpec(Pass& pass) {
  if (pass.observed.spec_error.empty()) return;
  FinishJob(pass, false, kInvalidSpec, pass.observed.spec_error);
}

}  // namespace starling::trainingjob
