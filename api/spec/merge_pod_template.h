// SPDX-License-Identifier: Apache-2.0
// One pod template over another, in the way of Kubernetes' strategic merge: how a user's template
// changes what we give a pod, and a job's what its administrator's template gives.
#pragma once

#include "nlohmann/json_fwd.hpp"

namespace starling::spec {

// What a null in the patch does to what stands in the base. Where the result is a patch of
// something else in its turn, it must still remove that there.
enum class Nulls { kRemove, kKeep };

// `patch` over `base`: objects by key, lists of named items by name (mounts by mountPath, ports by
// containerPort), other lists replaced. Volumes and variables of the same name are replaced whole,
// and so is a probe's handler.
nlohmann::json MergePodTemplate(nlohmann::json base, const nlohmann::json& patch,
                                Nulls nulls = Nulls::kRemove);

}  // namespace starling::spec
