// SPDX-License-Identifier: Apache-2.0
// Builders of the Kubernetes objects of a TrainingJob: pure functions from job to message; of pods,
// which hold whatever a user's template says, to JSON.
//
// Everything a job consists of is built here and nowhere else: its pods (pod.cc), its headless
// service, its disruption budget, its secret, its frozen spec. Two homes differ in little, all of
// it in Platform. To add a kind of object: a function here, an action in controller/trainingjob, a
// line in its reconciler.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/resources/names.h"

namespace starling::v1alpha1 {
class TrainingJobSpec;
}

namespace starling::kubernetes {
class ConfigMap;
class PodDisruptionBudget;
class Secret;
class Service;
}  // namespace starling::kubernetes

namespace starling::resources {

using Json = nlohmann::json;

struct JobCredentials;

// The roles that have pods in such a job, the coordinator first.
std::vector<Role> RolesOf(const v1alpha1::TrainingJobSpec& resolved);
bool HasServers(const v1alpha1::TrainingJobSpec& resolved);

// The home that the pods run in.
struct Platform {
  // Not empty: processes of this machine, with the job's folder under this one. Empty: a cluster.
  std::string jobs_folder;
  std::string image;  // of the container "trainer", on a cluster
  // What jobs' credentials are derived from (credentials.h).
  std::string seed = {};
  std::string image_pull_policy = {};  // empty: Kubernetes' default for the image's tag
  // On one machine: the folder in which Python finds the package "starling".
  std::string python = {};

  bool local() const { return !jobs_folder.empty(); }
};

// Which pod of the job, and what it needs beyond what the job says.
struct PodRequest {
  Role role = Role::kWorker;
  std::int64_t index = 0;
  std::int64_t config_generation = 0;  // of the frozen spec that it reads
  // Nodes that it must not be placed on.
  std::vector<std::string> avoid = {};
  // Request and limit of the container "trainer", such as 96Mi; empty: as its template says.
  std::string memory = {};
  std::map<std::string, std::string> annotations = {};
};

// The pod of one member. Its command is the supervisor's, followed by the role's. The user's
// template is merged over it: lists whose items have names (containers, volumes, env) by name,
// other lists replaced. Labels and annotations of ours, the owner and restartPolicy Never stay as
// they are. On a cluster it passes Pod Security "restricted", unless the template says otherwise.
// InvalidArgument names what in the template cannot be.
absl::StatusOr<Json> BuildPod(const JobIdentity& job, const v1alpha1::TrainingJobSpec& resolved,
                              const PodRequest& request, const Platform& platform);

// The headless service of the job's pods, ready or not. It has no selector: where the pods are is
// told by endpoints.h.
kubernetes::Service BuildService(const JobIdentity& job);

// Workers: at most one at a time is evicted for somebody's maintenance; each saves its work and is
// replaced first. Pods that are not ready are in nobody's way. Parameter servers: all but one may
// be evicted at a time, for each hands over what it holds; the only one waits until it is replaced.
// (Of those a number that must stay is the only form that works: the one that may go is counted
// from the scale subresource, which speaks of workers.)
kubernetes::PodDisruptionBudget BuildBudget(const JobIdentity& job, Role role);

// The job's secret: the data-plane key and a leaf for each role, of which a pod mounts its own.
kubernetes::Secret BuildSecret(const JobIdentity& job, const JobCredentials& credentials);

// What was recorded for a request (api/spec/trace_request.h); `packed` is the file.
kubernetes::ConfigMap BuildTrace(const JobIdentity& job, std::string_view request,
                                 std::string_view packed);

// The frozen spec: `resolved` is what the pods read, `given` what the user wrote, by
// which later edits are told from what a newer controller's defaults would change.
kubernetes::ConfigMap BuildConfig(const JobIdentity& job, std::int64_t generation,
                                  std::string_view given_json, std::string_view resolved_json);

// A user's template over what we give a pod (api/spec/merge_pod_template.h).
Json MergeTemplate(Json base, const Json& patch);

}  // namespace starling::resources
