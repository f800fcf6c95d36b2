// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "common/status/macros.h"
#include "trainer/workload/network_engine.h"
#include "trainer/workload/saved_model.h"

namespace starling::workload {
namespace {

onnx::Result ResultOf(ModelKind kind) {
  switch (kind) {
    case ModelKind::kLanguageModel:
      return onnx::Result::kScores;
    case ModelKind::kRegression:
      return onnx::Result::kPredictions;
    case ModelKind::kAutoencoder:
      return onnx::Result::kReconstruction;
    case ModelKind::kClassification:
      break;
  }
  return onnx::Result::kProbabilities;
}

// How samples are scaled is part of the graph: nobody is to do it once more.
std::map<std::string, std::string> MetadataOf(const ModelDescription& description) {
  constexpr std::string_view kOurs = "starling.";
  constexpr std::string_view kScale = "starling.normalization.";
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : description.metadata) {
    if (key.starts_with(kOurs) && !key.starts_with(kScale)) metadata[key] = value;
  }
  return metadata;
}

}  // namespace

absl::StatusOr<std::string> SavedModel::ToOnnx(onnx::Weights weights) {
  onnx::Source source{
      .network = description_.config.network,
      .result = ResultOf(description_.kind),
      .weights = weights,
      .sigmoid = description_.config.loss == engine::NumberLoss::kBinaryCrossEntropy,
      .metadata = MetadataOf(description_)};
  if (description_.normalization) {
    source.mean = description_.normalization->mean;
    source.deviation = description_.normalization->std;
  }
  const std::span<const float> values = engine_->parameters();
  for (const network::Parameter& parameter : source.network.parameters) {
    const auto tensor =
        std::ranges::find(engine_->tensors(), parameter.name, &engine::Tensor::name);
    source.parameters.push_back(values.subspan(static_cast<std::size_t>(tensor->offset),
                                               static_cast<std::size_t>(tensor->size)));
  }
  ASSIGN_OR_RETURN(const onnx::EncodeFunction encode, LoadOnnxEncoder());
  absl::StatusOr<std::string> file;
  encode(source, &file);
  return file;
}

}  // namespace starling::workload
