// SPDX-License-Identifier: Apache-2.0
// The functions of libstarling_engine.so.
#include <torch/torch.h>

#include "trainer/engine/engine_library.h"
#include "trainer/engine/numeric_identity.h"
#include "trainer/engine/torch_engine.h"
#include "trainer/onnx/onnx_model.h"

extern "C" __attribute__((visibility("default"))) void starling_open_engine(
    const starling::engine::EngineConfig& config, starling::engine::OpenedEngine* opened) {
  at::set_num_threads(1);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  opened->engine = starling::engine::MakeTorchEngine(config);
  opened->numeric_identity = starling::engine::NumericIdentity();
}

extern "C" __attribute__((visibility("default"))) void starling_encode_onnx(
    const starling::onnx::Source& source, absl::StatusOr<std::string>* file) {
  *file = starling::onnx::Encode(source);
}
