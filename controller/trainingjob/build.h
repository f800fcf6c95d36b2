// SPDX-License-Identifier: Apache-2.0
// The pod that an action asks for: what controller/resources builds, with what was decided about
// it. All pods of a job are built here.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "absl/status/statusor.h"
#include "controller/resources/container_pod.h"
#include "controller/resources/resources.h"
#include "controller/trainingjob/decision.h"

namespace starling::trainingjob {

// `frozen` is the spec that pods of the action's generation run with. InvalidArgument: it gives no
// pod, and why.
absl::StatusOr<nlohmann::json> BuildJobPod(const JobIdentity& job,
                                           const v1alpha1::TrainingJobSpec& frozen,
                                           const CreatePod& create,
                                           const resources::Platform& platform);

// The same for several pods of one job: what pods of one role, generation, memory and choice of
// nodes have in common is built once. Confined to one thread; what is referred to must outlive it.
class PodBuilder {
 public:
  PodBuilder(const JobIdentity& job, const resources::Platform& platform)
      : job_(job), platform_(platform) {}

  // `frozen` is always the same for one generation.
  absl::StatusOr<nlohmann::json> Build(const v1alpha1::TrainingJobSpec& frozen,
                                       const CreatePod& create);

  // What the pods of a job that brings its own container have in common, of the last one that was
  // built; and the same for a builder that goes on with it: for workers of that generation without
  // further wishes, whose frozen spec is the one that it was made of.
  std::optional<resources::RoundPods> Made() const;
  void Use(std::int64_t generation, resources::RoundPods pods);

 private:
  struct Last {
    CreatePod create;
    resources::RoundPods pods;
  };

  const JobIdentity& job_;
  const resources::Platform& platform_;
  std::optional<Last> last_;
};

}  // namespace starling::trainingjob
