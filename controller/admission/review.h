// SPDX-License-Identifier: Apache-2.0
// The validating webhook's answer: an AdmissionReview of admission.k8s.io/v1 in, one out.
//
// It says what the schema and its CEL rules cannot: presets, pod templates, what a field means once
// defaults are in. The words are those of `starling validate`, for the same functions say them. It
// never changes an object (creator.h and template_review.h do). A pure function, so that hostile
// input can be tried without a server; to check a further kind, add a row to kReviewed in
// review.cc.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include "api/spec/field_error.h"
#include "nlohmann/json.hpp"

namespace starling::admission {

// The review that answers `review`: its request's uid, allowed or not, and why. InvalidArgument:
// `review` is none, so that there is nobody to answer to.
absl::StatusOr<nlohmann::json> Review(const nlohmann::json& review);

// What refuses a request whose object is invalid: the errors, one a line and one a cause.
nlohmann::json RefusalOf(const spec::FieldErrors& errors);

// A review that answers `review` and allows what it asks about. InvalidArgument: as above.
absl::StatusOr<nlohmann::json> AnswerTo(const nlohmann::json& review);

// The object of a request that makes or changes one as a whole; null: it asks about something else.
const nlohmann::json* WrittenObject(const nlohmann::json& request);

// Has the request's object changed by a JSON patch; an empty one changes nothing.
void AddPatch(const nlohmann::json& patch, nlohmann::json& answer);

// One of these functions of text, as it came over the network: bounded in size, depth and number of
// values.
using Reviewer = std::function<absl::StatusOr<nlohmann::json>(const nlohmann::json& review)>;
absl::StatusOr<nlohmann::json> ReviewText(std::string_view text, const Reviewer& reviewer = Review);

// An API server sends at most the object and the one before, each bounded by what etcd takes.
inline constexpr std::size_t kLargestReview = 8U << 20U;

}  // namespace starling::admission
