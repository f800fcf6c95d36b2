// SPDX-License-Identifier: Apache-2.0
// The end of training: the model file, and the numbers that go into the job's status.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/storage/blob_store.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/batches.h"
#include "trainer/worker/training_state.h"

namespace starling::worker {

// Writes checkpoint::kModel into the job's storage, the best parameters if the state keeps them,
// and says how training ended. `course` is that of the final state, its last validation included.
absl::StatusOr<v1alpha1::Result> WriteResult(storage::BlobStore& storage,
                                             const TrainingState& state, const Course& course,
                                             const v1alpha1::Stop& stop,
                                             const data::Batches& batches,
                                             const std::map<std::string, std::string>& metadata);
// The same of `tensors`, wherever they are; `best`: they are those of the best validation.
absl::StatusOr<v1alpha1::Result> WriteResult(storage::BlobStore& storage,
                                             const std::vector<checkpoint::TensorView>& tensors,
                                             bool best, const Course& course, Names metrics,
                                             const v1alpha1::Stop& stop,
                                             const data::Batches& batches,
                                             const std::map<std::string, std::string>& metadata);

}  // namespace starling::worker
