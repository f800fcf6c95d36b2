// SPDX-License-Identifier: Apache-2.0
// The pod that an action asks for: what controller/resources builds, with what was decided about
// it. All pods of a job are built here.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "controller/resources/resources.h"
#include "controller/trainingjob/decision.h"

namespace starling::trainingjob {

// `frozen` is the spec that pods of the action's generation run with. InvalidArgument: it gives no
// pod, and why.
absl::StatusOr<nlohmann::json> BuildJobPod(const JobIdentity& job,
                                           const v1alpha1::TrainingJobSpec& frozen,
                                           const CreatePod& create,
                                           const resources::Platform& platform);

}  // namespace starling::trainingjob
