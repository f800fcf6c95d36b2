// SPDX-License-Identifier: Apache-2.0
// A number that rises with every controller process: what an older one still says is not obeyed.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/clock/clock.h"
#include "controller/kube/kube_client.h"

namespace starling::manager {

// Takes the lease "starling-controller" for `holder` by compare-and-swap and returns its
// transitions, counted from 1. It does not ask whether another holder lives: the home's lock does.
absl::StatusOr<std::int64_t> TakeLease(kube::KubeClient& client, const clock::Clock& clock,
                                       std::string_view holder);

}  // namespace starling::manager
