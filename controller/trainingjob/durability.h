// SPDX-License-Identifier: Apache-2.0
// Whether a job's checkpoints and its model outlive its pods.
#pragma once

#include "controller/resources/resources.h"

namespace starling::trainingjob {

// On one machine they always do. In a cluster: where checkpoint.uri names another kind of store, or
// a path that lies on a volume of the worker's template which is no emptyDir.
bool IsCheckpointDurable(const v1alpha1::TrainingJobSpec& resolved,
                         const resources::Platform& platform);

}  // namespace starling::trainingjob
