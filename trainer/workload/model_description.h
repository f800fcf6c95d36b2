// SPDX-License-Identifier: Apache-2.0
// What a model file says of itself in its metadata: which workload it is of, the network, and what
// its samples are. A file is foreign: whatever it says is held against the bounds of job files.
//
// A workload writes it (Declaration::model_metadata), and whoever uses the file without the job
// reads it here. To add a workload: a value of ModelKind and its row in model_description.cc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/load_datasets.h"
#include "trainer/engine/engine_library.h"

namespace starling::workload {

// Which workload a model is of.
enum class ModelKind { kClassification, kLanguageModel, kRegression, kAutoencoder };

// What a model file says of itself, beside its tensors.
struct ModelDescription {
  ModelKind kind = ModelKind::kClassification;
  engine::EngineConfig config;     // the network
  std::int64_t classes = 0;        // or symbols, columns that are predicted, numbers of a sample
  std::vector<std::string> names;  // of classes or columns, by number; empty where they have none
  std::optional<data::Normalization> normalization;
  data::Alphabet alphabet;                      // of a language model
  std::map<std::string, std::string> metadata;  // all of it, as the file says it
};

// INVALID_ARGUMENT where it does not say what its network is, or says what cannot be.
absl::StatusOr<ModelDescription> ReadDescription(
    const std::map<std::string, std::string>& metadata);

}  // namespace starling::workload
