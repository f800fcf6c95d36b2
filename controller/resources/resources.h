// SPDX-License-Identifier: Apache-2.0
// Builders of the Kubernetes objects of a TrainingJob: pure functions from job to JSON.
//
// Everything a job consists of is built here and nowhere else: its pods, its headless service, its
// secret, its frozen spec. Two homes differ in little, all of it in Platform. To add a kind of
// object: a function here, an action in controller/trainingjob, a line in its reconciler.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "controller/resources/names.h"

namespace starling::v1alpha1 {
class TrainingJobSpec;
}

namespace starling::resources {

using Json = nlohmann::json;

// The home that the pods run in.
struct Platform {
  // Not empty: processes of this machine, with the job's folder under this one. Empty: a cluster.
  std::string jobs_folder;
  std::string image;  // of the container "trainer", on a cluster

  bool local() const { return !jobs_folder.empty(); }
};

// The pod of one member. Its command is the supervisor's, followed by the role's; the user's
// template is merged over it: lists whose items have names (containers, volumes, env) by name,
// other lists replaced. Labels of ours, the owner and restartPolicy Never stay as they are.
// InvalidArgument: the template is no JSON object.
absl::StatusOr<Json> BuildPod(const JobIdentity& job, const v1alpha1::TrainingJobSpec& resolved,
                              Role role, std::int64_t index, std::int64_t config_generation,
                              const Platform& platform);

// A headless service over all pods of the job, ready or not.
Json BuildService(const JobIdentity& job);

// The job's secret. `data_plane_key` is random and made once: whoever finds the secret there keeps
// it. This is the one place that knows what credentials a job has.
Json BuildSecret(const JobIdentity& job, std::string_view data_plane_key);

// The frozen spec, immutable: `resolved` is what the pods read, `given` what the user wrote, by
// which later edits are told from what a newer controller's defaults would change.
Json BuildConfig(const JobIdentity& job, std::int64_t generation, std::string_view given_json,
                 std::string_view resolved_json);

// `patch` merged over `base`, in the way of Kubernetes' strategic merge: objects by key, lists of
// named items by name (mounts by mountPath, ports by containerPort), other lists replaced, null
// removes.
Json MergeTemplate(Json base, const Json& patch);

}  // namespace starling::resources
