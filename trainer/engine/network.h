// SPDX-License-Identifier: Apache-2.0
// The networks that the engine knows: their parameters' names and shapes, and the forward pass.
//
// A network has no storage: parameters are views of the engine's flat buffer, handed to Forward in
// the order of `parameters()`. To add a network: implement Network in network.cc, give it a
// ModelKind, and a case in MakeNetwork.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/engine/engine_library.h"

namespace at {
class Tensor;
}  // namespace at

namespace starling::engine {

// Initialised uniformly in (-1/sqrt(fan_in), 1/sqrt(fan_in)), as PyTorch's Linear and Conv2d do.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t fan_in = 0;
};

// Thread-compatible.
class Network {
 public:
  virtual ~Network() = default;

  // From the first layer to the last.
  virtual std::span<const Parameter> parameters() const = 0;
  // A fully connected layer: its weight's place in parameters(), what goes in, what comes out.
  using OnLinear =
      std::function<void(size_t weight, const at::Tensor& input, const at::Tensor& output)>;
  // `input` is (samples, features...); the result (samples, classes), not normalised. `on_linear`
  // may be empty.
  virtual at::Tensor Forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                             const OnLinear& on_linear) const = 0;
};

// Fails when the model cannot take samples of this shape.
absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const EngineConfig& config);

}  // namespace starling::engine
