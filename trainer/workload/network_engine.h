// SPDX-License-Identifier: Apache-2.0
// The engine of a workload that is a network: the shared library, which is loaded while the data
// are read, and a network in it that begins where the job says.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "api/network/plan.h"
#include "trainer/engine/engine_library.h"
#include "trainer/onnx/onnx_model.h"

namespace starling::v1alpha1 {
class TrainingJobSpec;
}  // namespace starling::v1alpha1

namespace starling::workload {

// Loads the engine's library (0.4 s), which stands beside the program or on the loader's path, and
// returns its entry. The numeric environment (trainer/worker) must be set before.
absl::StatusOr<engine::OpenEngineFunction> LoadEngineLibrary();

// The same for its function that makes ONNX models.
absl::StatusOr<onnx::EncodeFunction> LoadOnnxEncoder();

// The same on another thread, from now on.
using EngineLibrary = std::shared_future<absl::StatusOr<engine::OpenEngineFunction>>;
EngineLibrary BeginToLoadEngine();

// Of a network, for model files.
using Description = std::map<std::string, std::string>;

struct OpenedNetwork {
  std::unique_ptr<engine::Engine> engine;
  std::string numeric_identity;
  Description description;
};

// Opens `config` with the job's seed, size of buckets and numbers. Where the job has an initial
// model, its tensors are read, and its digest becomes part of `data_digest`: workers that begin
// differently must not train together, as those with other data. Errors name the field.
absl::StatusOr<OpenedNetwork> OpenNetwork(const v1alpha1::TrainingJobSpec& spec,
                                          const EngineLibrary& library, engine::EngineConfig config,
                                          std::string& data_digest);

// Which workload it is and the network as the job file describes it, for whoever uses a model file:
// metadata "starling.workload" (the field's name) and "starling.model" (its JSON).
Description DescriptionOf(const v1alpha1::TrainingJobSpec& spec);

}  // namespace starling::workload
