// SPDX-License-Identifier: Apache-2.0
// Whether a controller has anything left to do.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "absl/time/time.h"

namespace starling::manager {

using Object = std::shared_ptr<const nlohmann::json>;

// No job is active (each has ended or is suspended), no pod has processes, and no ended job is to
// be deleted soon. `now` is wall time.
bool IsIdle(const std::vector<Object>& jobs, const std::vector<Object>& pods, absl::Time now);

}  // namespace starling::manager
