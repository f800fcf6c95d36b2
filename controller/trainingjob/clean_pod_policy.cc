// SPDX-License-Identifier: Apache-2.0
// cleanPodPolicy: what becomes of the pods when the job has ended.
//
// The coordinator is told that the end is recorded. It releases the members and they exit by
// themselves. A pod that does not exit is deleted: immediately after a failure, after a timeout
// otherwise.
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {

namespace {

// cleanPodPolicy None: all pods exit by themselves once they are told that the job has ended. If
// the coordinator is gone nobody tells the members, so they are deleted after the timeout.
void LetGo(Pass& pass) {
  if (pass.OwnContainer() || pass.leader != nullptr) return;
  const absl::Time deadline = ToTime(pass.status.completion_time()) + pass.options.finish_timeout;
  for (const ObservedPod* pod : pass.UsableMembers()) {
    if (pass.now >= deadline) {
      pass.Delete(*pod, std::nullopt);
    } else {
      pass.RequeueAt(deadline);
    }
  }
}

}  // namespace

void CleanPods(Pass& pass) {
  const v1alpha1::CleanPodPolicy policy = pass.observed.spec.run_policy().clean_pod_policy();
  const bool succeeded = ConditionStatus(pass.status, "Succeeded") == "True";
  const absl::Time deadline =
      succeeded ? ToTime(pass.status.completion_time()) + pass.options.finish_timeout
                : absl::InfinitePast();
  if (policy == v1alpha1::CLEAN_POD_POLICY_NONE) return LetGo(pass);
  bool running = false;
  bool members = false;
  for (const ObservedPod& pod : pass.observed.pods) {
    running |= pod.Live();
    members |= resources::IsMember(pod.role) && !pod.Terminated();
  }
  // A coordinator without members has nobody left to let go.
  if (running && members && !pass.OwnContainer() && pass.now < deadline) {
    pass.RequeueAt(deadline);
  } else if (running) {
    DeleteAllPods(pass);
  }
  if (policy != v1alpha1::CLEAN_POD_POLICY_ALL) return;
  for (const ObservedPod& pod : pass.observed.pods) {
    if (pod.Terminated() && !pod.terminating) pass.Delete(pod, 0);
  }
}

}  // namespace starling::trainingjob
