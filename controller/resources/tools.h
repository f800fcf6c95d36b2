// SPDX-License-Identifier: Apache-2.0
// What pods need in which an image of the user's runs a program of ours. For the files of this
// folder.
//
// An init container of our image copies it into the volume "run", which both containers share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controller/resources/resources.h"

namespace starling::resources {

inline constexpr char kRunVolume[] = "run";
inline constexpr char kSupervisor[] = "starling-supervisor";

// The container "trainer" among those of a pod or of a template, or null.
const Json* TrainerIn(const Json& pod_or_template);
Json* TrainerIn(Json& pod_or_template);

// Where the supervisor lies in a container of another's image.
std::string InstalledSupervisor();

// Adds the init container before those of the pod: it installs the supervisor, and does what
// `more`, further flags of starling-supervisor --install, says. It satisfies Pod Security
// "restricted" whoever the pod runs as.
void AddTools(Json& pod, const std::vector<std::string>& more, const Platform& platform);

}  // namespace starling::resources
