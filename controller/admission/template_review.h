// SPDX-License-Identifier: Apache-2.0
// What a job's template gives, put into the job: the mutating webhook's answer to an
// AdmissionReview (api/spec/template.h says what is given and how).
//
// Jobs that name a template cannot be made while no controller answers (the chart's failurePolicy
// Fail for them alone), so that nobody writes an annotation that speaks of other bounds.
#pragma once

#include "absl/status/statusor.h"
#include "api/spec/template.h"
#include "nlohmann/json_fwd.hpp"

namespace starling::admission {

// The review that answers `review`, with a JSON patch where the template gives something, or a
// refusal where there is none or it is wrong. InvalidArgument: `review` is none.
absl::StatusOr<nlohmann::json> LayTemplate(const nlohmann::json& review,
                                           const spec::FindTemplate& find);

}  // namespace starling::admission
