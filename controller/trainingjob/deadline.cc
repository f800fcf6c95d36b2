// SPDX-License-Identifier: Apache-2.0
// activeDeadlineSeconds: how long a job may be active. Suspension stops the clock.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

// When the present stretch of activity began; nothing while there is none.
std::optional<absl::Time> StretchStart(const Pass& pass) {
  const v1alpha1::TrainingJobStatus& status = pass.status;
  if (!status.has_start_time() || status.has_completion_time()) return std::nullopt;
  const v1alpha1::Condition* suspended = FindCondition(status, "Suspended");
  if (suspended == nullptr) return ToTime(status.start_time());
  if (suspended->status() != "False") return std::nullopt;
  return std::max(ToTime(status.start_time()), ToTime(suspended->last_transition_time()));
}

}  // namespace

double ActiveSeconds(const Pass& pass) {
  const std::optional<absl::Time> start = StretchStart(pass);
  if (!start.has_value()) return pass.status.active_seconds();
  const absl::Duration stretch = std::max(pass.now - *start, absl::ZeroDuration());
  return pass.status.active_seconds() + absl::ToDoubleSeconds(stretch);
}

void FailByDeadline(Pass& pass) {
  const v1alpha1::RunPolicy& policy = pass.observed.spec.run_policy();
  if (!policy.has_active_deadline_seconds() || !StretchStart(pass).has_value()) return;
  const double left = static_cast<double>(policy.active_deadline_seconds()) - ActiveSeconds(pass);
  if (left > 0) {
    pass.RequeueAfter(absl::Seconds(left) + absl::Milliseconds(1));
    return;
  }
  FinishJob(pass, false, "DeadlineExceeded",
            absl::StrCat("the job was active for longer than its activeDeadlineSeconds of ",
                         policy.active_deadline_seconds()));
}

}  // namespace starling::trainingjob
