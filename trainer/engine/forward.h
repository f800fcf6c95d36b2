// SPDX-License-Identifier: Apache-2.0
// The forward pass of a network (api/network/network.h) on libtorch: one function for each of its
// operations, called one after another.
//
// A network has no storage: parameters are views of the engine's flat buffer. To add an operation:
// see network.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "api/network/network.h"

namespace at {
class Tensor;
}  // namespace at

namespace starling::engine {

// Numbers that are narrower than 32 bits (EngineConfig::round). It outlives backward.
struct Narrow {
  std::function<void(std::span<float>)> round;
  float loss_scale = 1;
};

// `parameter` in such numbers; its gradient is rounded, and divided by the loss's scale.
at::Tensor NarrowParameter(const at::Tensor& parameter, const Narrow& narrow);

// (rows..., numbers) as (rows, numbers).
at::Tensor AsMatrix(const at::Tensor& rows);

struct Pass {
  // In backward, of parameter `weight`, a matrix: its gradient is the product of the errors of
  // what came out, (rows..., outputs), and of what went in, (rows..., inputs). True: the callee
  // takes care of it, and nothing else adds to that gradient.
  using OnProduct =
      std::function<bool(size_t weight, const at::Tensor& errors, const at::Tensor& inputs)>;
  // What the running mean that is parameter `parameter` is to follow: the mean over these samples.
  using OnStatistics = std::function<void(size_t parameter, const at::Tensor& mean)>;

  bool training = false;
  OnProduct on_product = {};        // needed in training; outlives backward
  OnStatistics on_statistics = {};  // needed in training
  // What dropout is drawn by: the samples' ids, needed in training where there is any.
  std::span<const int64_t> samples = {};
  int64_t epoch = 0;
  uint64_t seed = 0;
  const Narrow* narrow = nullptr;  // null: what layers give stays as it is
};

// `input` is (samples, network.input...), `parameters` in the network's order; the result (samples,
// classes), or (samples, places, classes), not normalised. Throws std::invalid_argument where the
// samples' numbers do not fit the network, and what libtorch throws.
at::Tensor Forward(const network::Network& network, const std::vector<at::Tensor>& parameters,
                   at::Tensor input, const Pass& pass);

}  // namespace starling::engine
