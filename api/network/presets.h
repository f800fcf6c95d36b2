// SPDX-License-Identifier: Apache-2.0
// The layers that a named network stands for.
//
// A named network is a member of the contract's Model and a row of the table in presets.cc: what
// it asks of its images, and the function that writes its layers down. Its tensors are named as
// PyTorch's torchvision names them, so that a state dictionary from there fits.
#pragma once

#include <array>
#include <cstdint>

#include "google/protobuf/repeated_field.h"

namespace starling::v1alpha1 {
class Layer;
class Model;
class Residual;
class TransformerBlock;
}  // namespace starling::v1alpha1

namespace starling::network {

using LayerList = google::protobuf::RepeatedPtrField<v1alpha1::Layer>;

// Those of the file where it has them itself.
LayerList LayersOf(const v1alpha1::Model& model);

// The residual blocks that a transformer's block stands for, over a sequence of so wide places.
std::array<v1alpha1::Residual, 2> HalvesOf(const v1alpha1::TransformerBlock& block,
                                           std::int64_t width);

}  // namespace starling::network
