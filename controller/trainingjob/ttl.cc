// SPDX-License-Identifier: Apache-2.0
// ttlSecondsAfterFinished: the job deletes itself, and its objects follow by garbage collection.
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {

void ExpireJob(Pass& pass) {
  const v1alpha1::RunPolicy& policy = pass.observed.spec.run_policy();
  if (!policy.has_ttl_seconds_after_finished()) return;
  const absl::Time due =
      ToTime(pass.status.completion_time()) + absl::Seconds(policy.ttl_seconds_after_finished());
  if (pass.now < due) {
    pass.RequeueAt(due);
    return;
  }
  pass.Reason("its time to live after the end is over");
  pass.decision.actions.push_back(DeleteJob{});
}

}  // namespace starling::trainingjob
