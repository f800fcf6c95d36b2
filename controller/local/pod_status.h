// SPDX-License-Identifier: Apache-2.0
// What a kubelet writes into a pod's status: pure builders of merge patches for it.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "controller/kube/kube_client.h"
#include "controller/local/pod_process.h"

namespace starling::local {

// The patch of the status subresource; its precondition is the pod's UID.
kube::Json WaitingPatch(const kube::Json& pod, const std::string& reason,
                        const std::string& message, absl::Time now);
kube::Json RunningPatch(const kube::Json& pod, const PodState& state, absl::Time now);

// `shutdown`: it ended because the node did, which is no failure of the pod's own: Failed with
// reason NodeShutdown and the condition DisruptionTarget, whatever its exit code.
kube::Json EndedPatch(const kube::Json& pod, const Outcome& outcome, const std::string& ip,
                      bool shutdown, absl::Time now);

// The patch of the pod itself: its node and the pid of its first process.
kube::Json PlacementPatch(const kube::Json& pod, pid_t pid);

bool HasEnded(const kube::Json& pod);

}  // namespace starling::local
