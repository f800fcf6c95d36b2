// SPDX-License-Identifier: Apache-2.0
// Who made an object, noted in it: the mutating webhook's answer to an AdmissionReview.
//
// On creation the annotation starling.dev/created-by becomes the name of the user who asks, as the
// API server knows it, whatever the object says of itself; on every change it stays what it was.
// While no controller answers, objects are made without it; that nobody writes another name into
// it then is held by the API server itself (the chart's ValidatingAdmissionPolicy). A pure
// function.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace starling::admission {

inline constexpr char kCreatedBy[] = "starling.dev/created-by";

// The review that answers `review`, with a JSON patch where something has to change; it refuses
// nothing. InvalidArgument: `review` is none, so that there is nobody to answer to.
absl::StatusOr<nlohmann::json> NoteCreator(const nlohmann::json& review);

}  // namespace starling::admission
