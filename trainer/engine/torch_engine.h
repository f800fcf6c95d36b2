// SPDX-License-Identifier: Apache-2.0
// The engine on libtorch's autograd.
//
// Parameters and gradients are two flat buffers; torch tensors are views of them, so the optimizer,
// the exchange and the checkpoints work on the very memory that libtorch computes with.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/engine/engine_library.h"

namespace starling::engine {

// Parameters are drawn from `config.seed` by counter: equal on every machine. Fails when there is
// no memory for them. The network must have parameters.
absl::StatusOr<std::unique_ptr<Engine>> MakeTorchEngine(const EngineConfig& config);

}  // namespace starling::engine
