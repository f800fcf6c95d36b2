// SPDX-License-Identifier: Apache-2.0
// Opens the engine's shared library, which stands beside the program or on the loader's path.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/engine/engine_library.h"

namespace starling::worker {

// Loads the library (0.4 s) and returns its entry. The numeric environment must be set before.
absl::StatusOr<engine::OpenEngineFunction> LoadEngineLibrary();

// What the engine needs to know of the job and its data.
engine::EngineConfig EngineConfigOf(const v1alpha1::TrainingJobSpec& spec,
                                    const data::Dataset& train);

}  // namespace starling::worker
