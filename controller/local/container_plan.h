// SPDX-License-Identifier: Apache-2.0
// From a pod's container to the process to start: program, arguments, environment.
//
// References in it are resolved as a kubelet does it ($(VAR), fieldRef, secretKeyRef,
// configMapKeyRef, envFrom), and paths that lie in a mounted volume are rewritten to where the
// volume really lies.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/process/launch.h"
#include "controller/kube/kube_client.h"
#include "controller/local/volumes.h"

namespace starling::local {

// The one container of the pod. InvalidArgument: it has none, several, or init containers, which
// processes without images cannot be.
absl::StatusOr<const kube::Json*> OnlyContainer(const kube::Json& pod);

// Gives the variable this value, in its place if it is there already.
void SetVariable(std::vector<std::string>& variables, const std::string& name,
                 const std::string& value);

// `text` with $(NAME) replaced by the variables' values; $$ stands for a dollar sign, unknown names
// stay as they are.
std::string ExpandVariables(const std::string& text, const std::vector<std::string>& variables);

// `text` with the real path of the mount that it starts with, also after a first "=".
std::string RewritePath(const std::string& text, const std::vector<Mount>& mounts);

// NotFound: an object that it refers to is not there yet. `base` (NAME=value) is what every pod
// gets; `program_folder` is where programs without a slash are looked for first.
absl::StatusOr<process::LaunchPlan> PlanContainer(const PodFacts& facts,
                                                  const kube::Json& container,
                                                  const std::vector<Mount>& mounts,
                                                  const std::vector<std::string>& base,
                                                  const std::string& program_folder,
                                                  const ObjectReader& read);

}  // namespace starling::local
