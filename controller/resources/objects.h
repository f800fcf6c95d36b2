// SPDX-License-Identifier: Apache-2.0
// What all objects of a job have in common. For the files of this folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "controller/resources/names.h"
#include "controller/resources/resources.h"
#include "kubernetes/objects.pb.h"

namespace starling::resources {

// Of an object that the job owns and that goes when it goes, with the labels of all of them.
kubernetes::ObjectMeta Owned(const JobIdentity& job, std::string name);

// The spec of a pod of ours before the user's template is merged over it, and BuildPod over it.
nlohmann::json DefaultPodSpec(const JobIdentity& job, const v1alpha1::TrainingJobSpec& resolved,
                              const PodRequest& request, const Platform& platform);
absl::StatusOr<nlohmann::json> BuildPodOver(nlohmann::json defaults, const JobIdentity& job,
                                            const v1alpha1::TrainingJobSpec& resolved,
                                            const PodRequest& request, const Platform& platform);
// All that a pod's index decides, but for what a framework is told by it.
void SetIndex(nlohmann::json& pod, const JobIdentity& job, Role role, std::int64_t index);
// What a pod carries for the controller to read back.
void SetAnnotations(nlohmann::json& annotations, const PodRequest& request);

}  // namespace starling::resources
