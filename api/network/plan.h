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
}  // namespace starling::v1alpha1

namespace starling::network {

inline constexpr char kModelPath[] = "spec.workload.classification.model";

// The network that `model` describes for samples of shape `input` and so many classes; 0: that is
// not known yet, and what depends on it is not checked. INVALID_ARGUMENT as "path: message", where
// the path is the layer's, such as spec.workload.classification.model.layers[2].convolution, or the
// named network's.
absl::StatusOr<Network> PlanNetwork(const v1alpha1::Model& model, const Shape& input,
                                    std::int64_t classes);

// What a named network asks of its samples: images of at least `side` by `side`. Nothing: any shape
// will do, or the layers say.
struct ImageNeed {
  std::string name;  // of the network
  std::int64_t side = 0;
};
std::optional<ImageNeed> NeedOf(const v1alpha1::Model& model);
bool Meets(const ImageNeed& need, const Shape& shape);

// Paths of the first layer of these kinds, whatever the shapes; none where there is no such layer.
std::optional<std::string> PathOfBatchNorm(const v1alpha1::Model& model);
std::optional<std::string> PathOfEmbedding(const v1alpha1::Model& model);

}  // namespace starling::network
