// SPDX-License-Identifier: Apache-2.0
// The table of workloads: which field of spec.workload is computed by what. To add one: see
// workload.h.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/load_datasets.h"
#include "trainer/workload/workload.h"

namespace starling::v1alpha1 {
class TrainingJobSpec;
}  // namespace starling::v1alpha1

namespace starling::workload {

// Reads the job's data and makes the workload, on the thread that will compute. INVALID_ARGUMENT,
// NOT_FOUND or PERMISSION_DENIED, with the path of the field, where the data are not what the job
// says (data::LoadDatasets).
using Opener = std::function<absl::StatusOr<std::unique_ptr<Workload>>()>;

// Begins on other threads what takes long (loading libtorch: 0.4 s), so that the caller can do
// something else before it calls the opener. `spec` is resolved and outlives the opener.
// UNIMPLEMENTED for a kind of workload that starling-worker does not compute.
absl::StatusOr<Opener> Begin(const v1alpha1::TrainingJobSpec& spec);

// What is wrong with the job's data, and with the names of metrics that it uses, before anything is
// started; empty when all is well. It takes less than a second.
std::vector<data::FieldProblem> Check(const v1alpha1::TrainingJobSpec& spec);

}  // namespace starling::workload
