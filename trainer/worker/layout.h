// SPDX-License-Identifier: Apache-2.0
// What a worker tells the servers of its job about model and data: how large the flat buffer is,
// and which of it lies on them.
#pragma once

#include "absl/status/statusor.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/workload/workload.h"

namespace starling::worker {

// INVALID_ARGUMENT when spec.exchange.parameterServer.tensors names a tensor that the model does
// not have, or all of them.
absl::StatusOr<parameter_server::Layout> LayoutOf(const v1alpha1::TrainingJobSpec& spec,
                                                  workload::Workload& workload);

}  // namespace starling::worker
