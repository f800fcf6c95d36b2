// SPDX-License-Identifier: Apache-2.0
// Which edits of a job's spec are allowed while it runs: the fields marked mutable_while_running.
#pragma once

#include "api/spec/field_error.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {

// One error for each field that differs and may not change now. While suspended, every field may
// but those that are immutable for good.
// Compare resolved specs, so that writing a default down is no change.
FieldErrors CheckChange(const v1alpha1::TrainingJobSpec& before,
                        const v1alpha1::TrainingJobSpec& after, bool suspended);

}  // namespace starling::spec
