// SPDX-License-Identifier: Apache-2.0
// What is left for a job: of quotas and nodes of a cluster, of the cores and memory of one machine.
// Whoever asks sees what their own rights show; for the rest it is said that it cannot be seen.
#pragma once

#include <string>
#include <vector>

#include "controller/kube/kube_client.h"
#include "controller/rest/plan.h"

namespace starling::service {

// Of each ResourceQuota of the namespace and, where the caller may list them, of the nodes that
// take pods. Taints, selectors and quotas with scopes are not looked at.
Rooms RoomsOfCluster(kube::KubeClient& caller, const std::string& ns);

// Of this machine: its cores but for those that jobs' pods there ask for, and the memory that is
// free by the kernel's own estimate.
Rooms RoomsOfMachine(kube::KubeClient& store);

// Pure parts, for tests.

// Nothing is bounded that we count: an empty map.
resources::Demand LeftOfQuota(const kube::Json& quota);
// `pods` are all of the cluster.
Room RoomOfNodes(const std::vector<kube::Json>& nodes, const std::vector<kube::Json>& pods);

}  // namespace starling::service
