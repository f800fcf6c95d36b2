// SPDX-License-Identifier: Apache-2.0
// What follows from a job's consistency model, answered once for all programs.
#pragma once

#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {

// The model; the schema's default where the spec was not resolved.
inline v1alpha1::Consistency::KindCase ConsistencyKind(const v1alpha1::TrainingJobSpec& spec) {
  const auto kind = spec.exchange().parameter_server().consistency().kind_case();
  return kind == v1alpha1::Consistency::KIND_NOT_SET ? v1alpha1::Consistency::kBulkSynchronous
                                                     : kind;
}

// Whether one batch of all workers together is one update: allreduce, and servers unless they are
// told otherwise.
inline bool WorksInStep(const v1alpha1::TrainingJobSpec& spec) {
  return ConsistencyKind(spec) == v1alpha1::Consistency::kBulkSynchronous;
}

// Whether all that is read at one clock is the same, so that a validation is of the state between
// two updates, and nobody loses by waiting for the others.
inline bool AllWaitForAll(const v1alpha1::TrainingJobSpec& spec) {
  return WorksInStep(spec) || ConsistencyKind(spec) == v1alpha1::Consistency::kBackupWorkers;
}

}  // namespace starling::spec
