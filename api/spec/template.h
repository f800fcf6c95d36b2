// SPDX-License-Identifier: Apache-2.0
// Templates of administrators: what a job that names one gets where it says nothing itself, and
// what it may not go beyond.
//
// A template acts once, when its job is made: what it gives is laid under the job's spec there and
// then, and what it said is noted whole in an annotation that nobody else may write. From then on
// the job stands for itself: it means the same though the template is changed or deleted, bounds
// are held against the note, and who sends the job's first file again gets the same filled in. Pure
// functions; where templates lie, controller/templates knows.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "api/spec/field_error.h"
#include "nlohmann/json_fwd.hpp"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {

inline constexpr char kTrainingTemplate[] = "TrainingTemplate";
inline constexpr char kClusterTrainingTemplate[] = "ClusterTrainingTemplate";

// JSON: kind, name, uid and generation of the template (where it has them), and its whole spec.
inline constexpr char kTemplateNote[] = "starling.dev/template";
// Of a template's spec: with it noted in an annotation, a job is still well within what is stored.
inline constexpr std::size_t kLargestTemplate = 48U << 10U;

struct TemplateName {
  std::string kind;
  std::string ns;  // of the job
  std::string name;
};
// The template as an object. NotFound: there is none of that name.
using FindTemplate = std::function<absl::StatusOr<nlohmann::json>(const TemplateName&)>;

// What is wrong with a template, by the paths of its fields: unknown fields in what it gives,
// bounds that no job can keep. For the webhook, too: `old` is what it replaces, or null.
FieldErrors CheckTemplate(const nlohmann::json& object, const nlohmann::json* old);

// Lays what the template gives under `job`, an object as it is to be stored, and notes it there;
// `old` is the job that it replaces, or null. Changes nothing of a job that names no template, but
// for a note that it has no right to, and nothing where there are errors. A job that cannot be read
// is left for those who say what is wrong with it.
FieldErrors ApplyTemplate(nlohmann::json& job, const nlohmann::json* old, const FindTemplate& find);

// What in a job goes beyond the bounds of the template that it was made with; or that it names one
// which was never applied. `resolved` is its spec.
FieldErrors CheckBounds(const nlohmann::json& job, const v1alpha1::TrainingJobSpec& resolved);

}  // namespace starling::spec
