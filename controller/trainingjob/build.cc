// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/build.h"

#include <nlohmann/json.hpp>

#include "controller/resources/container_pod.h"
#include "controller/resources/pytorch_pod.h"
#include "controller/trainingjob/observe.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::trainingjob {

absl::StatusOr<Json> BuildJobPod(const JobIdentity& job, const v1alpha1::TrainingJobSpec& frozen,
                                 const CreatePod& create, const resources::Platform& platform) {
  const resources::PodRequest request{.role = create.role,
                                      .index = create.index,
                                      .config_generation = create.config_generation,
                                      .avoid = create.avoid,
                                      .memory = create.memory,
                                      .annotations = AnnotationsOf(create)};
  if (frozen.workload().has_container()) {
    const resources::Round round{.number = create.world.round, .members = create.world.members};
    return resources::BuildContainerPod(job, frozen, request, round, platform);
  }
  if (frozen.workload().has_pytorch() && create.role == Role::kWorker) {
    return resources::BuildPytorchPod(job, frozen, request, platform);
  }
  return resources::BuildPod(job, frozen, request, platform);
}

}  // namespace starling::trainingjob
