// SPDX-License-Identifier: Apache-2.0
// Owner references at work: objects whose owners are all gone are deleted.
//
// On a cluster kube-controller-manager does this; the embedded store needs it done. Call it every
// second or so, and after deletions; it keeps no state. Name kinds that have owners (OwnedKinds())
// alone: all objects of each kind are read, and as long as that takes nobody writes.
#pragma once

#include <vector>

#include "controller/kube/kube_client.h"

namespace starling::kube {

// Deletes (background propagation) every object of `kinds` that has owner references none of which
// names a living object with that UID. Owners of unknown kinds count as living. Returns how many
// were deleted; the next call sees to their own dependents.
absl::StatusOr<int> CollectGarbage(KubeClient& client, const std::vector<ResourceKind>& kinds);

}  // namespace starling::kube
