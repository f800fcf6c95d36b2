// SPDX-License-Identifier: Apache-2.0
// A number that rises with every controller process: what an older one still says is not obeyed.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/clock/clock.h"
#include "controller/kube/kube_client.h"
#include "controller/runtime/lease_decision.h"

namespace starling::manager {

// Takes the lease that `election` names for its identity by compare-and-swap and returns its
// transitions, counted from 1. It does not ask whether another holder lives: on one machine the
// home's lock does, and in a cluster whoever wants that elects (runtime::LeaderElector).
absl::StatusOr<std::int64_t> TakeLease(kube::KubeClient& client, const clock::Clock& clock,
                                       const runtime::ElectionOptions& election);

}  // namespace starling::manager
