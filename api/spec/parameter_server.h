// SPDX-License-Identifier: Apache-2.0
// What a job with parameter servers must keep to, beyond the bounds of its fields: which techniques
// go with which, and the servers' sizes. Pure. To add a rule: a function in parameter_server.cc and
// its name in the list at the end.
#pragma once

#include "api/spec/field_error.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {

// Of a resolved spec without workload.container.
void CheckParameterServer(const v1alpha1::TrainingJobSpec& spec, FieldErrors& errors);

}  // namespace starling::spec
