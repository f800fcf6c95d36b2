// SPDX-License-Identifier: Apache-2.0
// The rules between fields: what no single field's bounds can say.
//
// One function a rule in validate.cc, each told of the whole resolved spec; to add a rule, write
// its function and put it into the list there.
#pragma once

#include "api/spec/field_error.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {

// All errors, with paths that begin with "spec". Pure: looks at no file.
FieldErrors Validate(const v1alpha1::TrainingJobSpec& resolved);

}  // namespace starling::spec
