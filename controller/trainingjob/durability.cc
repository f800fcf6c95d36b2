// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/durability.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "controller/kube/objects.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::trainingjob {
namespace {

using kube::Json;

// Volumes that go with the pod.
constexpr std::array<std::string_view, 6> kFleeting = {"emptyDir",    "configMap", "secret",
                                                       "downwardAPI", "projected", "ephemeral"};

// Without the slashes at its end; nothing is left of the root.
std::string Trimmed(std::string folder) {
  while (folder.ends_with('/')) folder.pop_back();
  return folder;
}

// `path` begins with a slash, `folder` is trimmed.
bool Lies(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

// The volume that holds `path` in the container "trainer"; empty: the container's own disk.
std::string VolumeOf(const Json& pod, const std::string& path) {
  std::string volume;
  std::size_t longest = 0;
  for (const Json& container : kube::At(pod, "/spec/containers")) {
    if (kube::StringAt(container, "/name") != resources::kContainer) continue;
    for (const Json& mount : kube::At(container, "/volumeMounts")) {
      const std::string given = kube::StringAt(mount, "/mountPath");
      const std::string folder = Trimmed(given);
      if (given.empty() || folder.size() < longest || !Lies(path, folder)) continue;
      longest = folder.size();
      volume = kube::StringAt(mount, "/name");
    }
  }
  return volume;
}

bool Outlives(const Json& pod, const std::string& volume) {
  for (const Json& candidate : kube::At(pod, "/spec/volumes")) {
    if (volume.empty() || kube::StringAt(candidate, "/name") != volume) continue;
    return std::none_of(kFleeting.begin(), kFleeting.end(), [&](std::string_view kind) {
      return candidate.contains(std::string(kind));
    });
  }
  return false;
}

// Whether what such a pod writes at `path` outlives it.
bool Keeps(const std::string& pod_template, const std::string& path) {
  const absl::StatusOr<Json> pod = json::Parse(pod_template);
  return pod.ok() && Outlives(*pod, VolumeOf(*pod, path));
}

}  // namespace

bool IsCheckpointDurable(const v1alpha1::TrainingJobSpec& resolved,
                         const resources::Platform& platform) {
  if (platform.local() || resolved.workload().has_container()) return true;
  std::string path = resolved.checkpoint().uri();
  if (path.empty()) return false;
  if (const std::size_t scheme = path.find("://"); scheme != std::string::npos) {
    if (path.substr(0, scheme) != "file") return true;
    path = path.substr(scheme + 3);
  }
  if (!path.starts_with('/')) path = absl::StrCat("/opt/starling/", path);  // as in the image
  // Servers write what is trained, a worker the model.
  const v1alpha1::ReplicaSpecs& roles = resolved.replica_specs();
  return Keeps(roles.worker().template_(), path) &&
         (!resources::HasServers(resolved) || Keeps(roles.parameter_server().template_(), path));
}

}  // namespace starling::trainingjob
