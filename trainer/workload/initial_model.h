// SPDX-License-Identifier: Apache-2.0
// A model that training begins with: spec.workload.classification.initialModel, and other
// workloads' likewise.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/engine/engine.h"

namespace starling::v1alpha1 {
class Workload;
}  // namespace starling::v1alpha1

namespace starling::workload {

struct InitialModel {
  std::string uri;
  std::string field;  // of the job file that says so
};
std::optional<InitialModel> InitialModelOf(const v1alpha1::Workload& workload);
// The name of the workload's field; empty where it has none.
std::string NameOf(const v1alpha1::Workload& workload);

// Fills `parameters`, which hold `tensors`, from that safetensors file; the file's SHA-256.
// INVALID_ARGUMENT, with the field, where it is no such file, lacks a tensor, or has one of
// another shape or type, and then the parameters are in part overwritten. Tensors that the model
// does not have are left out.
absl::StatusOr<std::string> ReadInitialModel(const InitialModel& initial,
                                             std::span<const engine::Tensor> tensors,
                                             std::span<float> parameters);

}  // namespace starling::workload
