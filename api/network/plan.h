// SPDX-License-Identifier: Apache-2.0
// From the model of a job file to the network that is computed: a pure function that infers every
// shape, and says which layer does not fit and what would.
//
// The controller and the command line call it to refuse a job before it starts, the trainer to
// build the network. A named network (mlp, resnet18) is a row in presets.cc that stands for layers.
// To add a kind of layer: see network.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "api/network/network.h"

namespace starling::v1alpha1 {
class Model;
class Workload;
}  // namespace starling::v1alpha1

namespace starling::network {

inline constexpr char kModelPath[] = "spec.workload.classification.model";
inline constexpr char kLanguageModelPath[] = "spec.workload.languageModel.model";
inline constexpr char kRegressionPath[] = "spec.workload.regression.model";
inline constexpr char kAutoencoderPath[] = "spec.workload.autoencoder.model";

// What a workload asks of its network.
struct Task {
  std::string path = kModelPath;  // of the model in the job file
  // It gives a number for each; 0: not known yet, and what depends on it is not checked.
  std::int64_t classes = 0;
  // Not one for each sample, but for each place of a sequence, by that place and those before it.
  bool each_place = false;
  // A number for each that the sample has, in the sample's shape or in another.
  bool gives_input = false;
  const char* each = "classes";  // what there is a number for, in messages
};

// The network that `model` describes for samples of shape `input`. INVALID_ARGUMENT as
// "path: message", where the path is the layer's, such as
// spec.workload.classification.model.layers[2].convolution, or the named network's.
absl::StatusOr<Network> PlanNetwork(const v1alpha1::Model& model, const Shape& input,
                                    const Task& task);
// Of a classification.
absl::StatusOr<Network> PlanNetwork(const v1alpha1::Model& model, const Shape& input,
                                    std::int64_t classes);

// The model of a workload, and what it asks of it as far as its block knows: of a classification
// the data know the classes. A workload without one has the empty model, which is not given.
struct Described {
  const v1alpha1::Model& model;
  Task task;
  bool given = true;
};
Described ModelOf(const v1alpha1::Workload& workload);

// What a named network asks of its samples: images of at least `side` by `side`. Nothing: any shape
// will do, or the layers say.
struct ImageNeed {
  std::string name;  // of the network
  std::int64_t side = 0;
};
std::optional<ImageNeed> NeedOf(const v1alpha1::Model& model);
bool Meets(const ImageNeed& need, const Shape& shape);

// Paths of the first layer of these kinds, whatever the shapes; none where there is no such layer.
// `path` is the model's.
std::optional<std::string> PathOfBatchNorm(const v1alpha1::Model& model,
                                           const std::string& path = kModelPath);
std::optional<std::string> PathOfEmbedding(const v1alpha1::Model& model,
                                           const std::string& path = kModelPath);

}  // namespace starling::network
