// SPDX-License-Identifier: Apache-2.0
// The boundary of the shared library libstarling_engine.so, which holds libtorch.
//
// The worker sets the numeric environment (numeric_environment.h), opens the library and calls
// OpenEngineFunction; whoever exports a model calls EncodeFunction (trainer/onnx/onnx_model.h).
// Only plain types cross: two copies of the generated protobuf code in one process would abort it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "api/network/network.h"
#include "trainer/engine/engine.h"

namespace starling::engine {

// Of one number that is wanted, by how far off it is.
enum class NumberLoss {
  kSquared,
  kHuber,  // half its square up to 1, then linear
  kAbsolute,
  kBinaryCrossEntropy,  // of numbers from 0 to 1: the network's go through a sigmoid
};

struct EngineConfig {
  network::Network network;
  NumberLoss loss = NumberLoss::kSquared;  // where numbers are wanted
  // Of the training loss: the share of a label that is spread over all classes, and how much each
  // class counts (empty: alike).
  double label_smoothing = 0;
  std::vector<float> class_weights;
  int64_t top = 0;  // of how many highest scores BatchSums::in_top is; 0: nobody asks
  uint64_t seed = 0;
  // So many samples go through the network at a time; 0: all. Gradients and sums are added.
  int64_t micro_batch = 0;
  int64_t bucket_bytes = 1 << 20;
  // Rounds numbers in place. Where it is given, ComputeGradients computes in such numbers: weights,
  // what goes into the network, what each layer gives, and the gradients of all of these are
  // rounded. A layer adds up in 32 bits, as hardware does that multiplies narrow numbers; so the
  // bits are the same on machines with and without it.
  std::function<void(std::span<float>)> round = {};
};

// What the library's function fills in.
struct OpenedEngine {
  absl::StatusOr<std::unique_ptr<Engine>> engine = absl::UnknownError("not opened");
  // What results depend on beside the inputs: workers that must agree bit by bit compare it.
  std::string numeric_identity;
};

inline constexpr char kEngineLibrary[] = "libstarling_engine.so";
inline constexpr char kOpenEngineSymbol[] = "starling_open_engine";
using OpenEngineFunction = void (*)(const EngineConfig& config, OpenedEngine* opened);

}  // namespace starling::engine
