// SPDX-License-Identifier: Apache-2.0
// The pod of a worker that runs a PyTorch program of the user's own (spec.workload.pytorch).
//
// It is a member as our own worker is: the same supervisor, flags, credentials and folders.
// Python's launcher (python/starling/embed/launch.py) takes the flags, answers the coordinator from
// then on, and runs the program. On one machine the package lies beside our programs. In a cluster
// the image is the user's: an init container of ours brings supervisor and package.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "controller/resources/resources.h"

namespace starling::resources {

// As BuildPod, for a worker of such a job. InvalidArgument too where the pod is for a cluster and
// the template names no image: ours has neither Python nor PyTorch.
absl::StatusOr<Json> BuildPytorchPod(const JobIdentity& job,
                                     const v1alpha1::TrainingJobSpec& resolved,
                                     const PodRequest& request, const Platform& platform);

}  // namespace starling::resources
