// SPDX-License-Identifier: Apache-2.0
// A model that training begins with: spec.workload.classification.initialModel.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/engine/engine.h"

namespace starling::workload {

inline constexpr char kInitialModel[] = "spec.workload.classification.initialModel.uri";

// Fills `parameters`, which hold `tensors`, from the safetensors file at `uri`; the file's SHA-256.
// INVALID_ARGUMENT, with the field's path, where it is no such file, lacks a tensor, or has one of
// another shape or type, and then the parameters are in part overwritten. Tensors that the model
// does not have are left out.
absl::StatusOr<std::string> ReadInitialModel(const std::string& uri,
                                             std::span<const engine::Tensor> tensors,
                                             std::span<float> parameters);

}  // namespace starling::workload
