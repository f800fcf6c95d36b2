// SPDX-License-Identifier: Apache-2.0
// The bounds of a template: whether they are bounds at all, and whether a spec keeps them. To add a
// kind of bound, add it to TemplateBounds in training_template.proto and to both functions.
#pragma once

#include <string>
#include <string_view>

#include "api/spec/field_error.h"
#include "starling/v1alpha1/training_template.pb.h"

namespace starling::spec {

// Bounds that no job can keep, that bound nothing, or of what is no single field. `path` is that of
// the bounds.
FieldErrors CheckBoundsAlone(const v1alpha1::TemplateBounds& bounds, std::string_view path);

// Whether fields that are not given count. Of what a template gives itself they do not.
enum class Absent { kRefused, kPassed };

// Where `spec`, which stands at `path`, goes beyond the bounds of the template that `who` names.
FieldErrors CheckKept(const v1alpha1::TemplateBounds& bounds, const v1alpha1::TrainingJobSpec& spec,
                      std::string_view path, const std::string& who, Absent absent);

// The same of one pod template at `path`: the containers' images and resources.
FieldErrors CheckPodsKept(const v1alpha1::PodBounds& bounds, const std::string& pod_template,
                          std::string_view path, const std::string& who, Absent absent);

}  // namespace starling::spec
