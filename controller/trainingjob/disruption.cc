// SPDX-License-Identifier: Apache-2.0
// Warned disruption: a pod that is about to be evicted or preempted, a node that is about to go.
//
// What is already marked for deletion is Draining to the coordinator (desired.cc) from the first
// moment. Here are those that are not yet: they are drained as well and their replacements made at
// once, so that state is handed over while everybody is alive.
#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {

void FindLeaving(Pass& pass) {
  for (const ObservedPod& pod : pass.observed.pods) {
    if (!pod.Live()) continue;
    const ObservedNode* node = pass.NodeOf(pod);
    const bool announced = node != nullptr && !node->departure.empty();
    if (!pod.disrupted && !announced) continue;
    pass.leaving.insert(pod.uid);
    pass.Reason(announced ? absl::StrCat(pod.name, " must leave ", pod.node, ": ", node->departure)
                          : absl::StrCat(pod.name, " is about to go: ", pod.disruption));
  }
}

// A coordinator keeps no state that its members lack, so its replacement is created immediately.
void ReplaceLeavingCoordinator(Pass& pass) {
  for (const ObservedPod* pod : pass.UsablePods(Role::kCoordinator)) {
    if (!pass.leaving.contains(pod->uid)) continue;
    pass.Delete(*pod, std::nullopt);
    if (pass.standby == pod) pass.standby = nullptr;
    if (pass.leader != pod) continue;
    pass.leader = nullptr;
    pass.report = nullptr;
  }
}

void ReleaseGoneNodes(Pass& pass) {
  for (const ObservedPod& pod : pass.observed.pods) {
    const ObservedNode* node = pass.NodeOf(pod);
    if (node == nullptr || node->exists || !pod.terminating || pod.Terminated()) continue;
    pass.Reason(absl::StrCat(pod.name, " was on ", pod.node, ", which is gone"));
    pass.Delete(pod, 0);
  }
}

}  // namespace starling::trainingjob
