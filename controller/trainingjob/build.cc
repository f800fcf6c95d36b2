// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/build.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/status/macros.h"
#include "controller/resources/pytorch_pod.h"
#include "controller/trainingjob/observe.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::trainingjob {

namespace {

resources::PodRequest RequestOf(const CreatePod& create) {
  return {.role = create.role,
          .index = create.index,
          .config_generation = create.config_generation,
          .avoid = create.avoid,
          .memory = create.memory,
          .annotations = AnnotationsOf(create)};
}

bool DifferInIndexAlone(CreatePod a, const CreatePod& b) {
  a.index = b.index;
  return a == b;
}

}  // namespace

absl::StatusOr<Json> BuildJobPod(const JobIdentity& job, const v1alpha1::TrainingJobSpec& frozen,
                                 const CreatePod& create, const resources::Platform& platform) {
  return PodBuilder(job, platform).Build(frozen, create);
}

absl::StatusOr<Json> PodBuilder::Build(const v1alpha1::TrainingJobSpec& frozen,
                                       const CreatePod& create) {
  if (!frozen.workload().has_container()) {
    const resources::PodRequest request = RequestOf(create);
    if (frozen.workload().has_pytorch() && create.role == Role::kWorker) {
      return resources::BuildPytorchPod(job_, frozen, request, platform_);
    }
    return resources::BuildPod(job_, frozen, request, platform_);
  }
  if (!last_.has_value() || !DifferInIndexAlone(last_->create, create)) {
    const resources::Round round{.number = create.world.round, .members = create.world.members};
    ASSIGN_OR_RETURN(resources::RoundPods pods,
                     resources::RoundPods::Make(job_, frozen, RequestOf(create), round, platform_));
    last_ = {create, std::move(pods)};
  }
  return last_->pods.Pod(create.index);
}

}  // namespace starling::trainingjob
