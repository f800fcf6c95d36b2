// SPDX-License-Identifier: Apache-2.0
// Whether a job may be stored: the one gate that the webhook and the embedded store both keep.
#pragma once

#include "api/spec/field_error.h"
#include "nlohmann/json_fwd.hpp"

namespace starling::spec {

// `object` is a whole TrainingJob as a store holds it, with its schema's defaults and what its
// template gives (template.h); `old` what it replaces, null where it is new. An edit that leaves
// the spec alone is always allowed, so that labels and finalizers of a job that an older version
// took can still be changed.
FieldErrors CheckAdmission(const nlohmann::json& object, const nlohmann::json* old);

}  // namespace starling::spec
