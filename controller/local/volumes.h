// SPDX-License-Identifier: Apache-2.0
// A pod's volumes as files of this machine.
//
// secret, configMap, downwardAPI and projected volumes are written into the pod's folder, readable
// by us alone; an emptyDir is a folder there; a hostPath is the path itself. Paths of the container
// are not remapped by the kernel, as a container's are: the container's command, arguments and
// environment are rewritten instead (see container_plan.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/kube/kube_client.h"

namespace starling::local {

// Reads a Secret or ConfigMap of the pod's namespace.
using ObjectReader = std::function<absl::StatusOr<kube::Json>(const kube::ResourceKind& kind,
                                                              const std::string& name)>;

struct Mount {
  std::string mount_path;  // in the container
  std::string real_path;
};

// What identifies a pod to itself.
struct PodFacts {
  const kube::Json& pod;
  std::string ip;
};

// The value of a fieldRef's path, such as metadata.labels['role'] or status.podIP.
// InvalidArgument: no such field.
absl::StatusOr<std::string> ResolveField(const PodFacts& facts, const std::string& field_path);

// The entries of a Secret or ConfigMap, decoded.
std::vector<std::pair<std::string, std::string>> DataOf(const kube::Json& object);

// Writes the volumes of the pod under `folder` and returns the mounts of `container`. NotFound: a
// Secret or ConfigMap, or a key of it, is not there yet. InvalidArgument: it can never work.
absl::StatusOr<std::vector<Mount>> ProjectVolumes(const PodFacts& facts,
                                                  const kube::Json& container,
                                                  const std::string& folder,
                                                  const ObjectReader& read);

}  // namespace starling::local
