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

// Whether one mold serves both.
bool AreAlike(const CreatePod& a, const CreatePod& b) {
  return a.role == b.role && a.config_generation == b.config_generation && a.memory == b.memory &&
         a.avoid == b.avoid;
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
  if (!last_.has_value() || !AreAlike(last_->create, create)) {
    ASSIGN_OR_RETURN(resources::RoundPods pods,
                     resources::RoundPods::Make(job_, frozen, RequestOf(create), platform_));
    last_ = {create, std::move(pods)};
  }
  return last_->pods.Pod(RequestOf(create),
                         {.number = create.world.round, .members = create.world.members});
}

void PodBuilder::Use(std::int64_t generation, resources::RoundPods pods) {
  last_ = {{.role = Role::kWorker, .index = 0, .config_generation = generation}, std::move(pods)};
}

std::optional<resources::RoundPods> PodBuilder::Made() const {
  if (!last_.has_value()) return std::nullopt;
  return last_->pods;
}

}  // namespace starling::trainingjob
