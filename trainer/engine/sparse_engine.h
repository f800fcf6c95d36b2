// SPDX-License-Identifier: Apache-2.0
// An engine whose samples use few of its parameters: a worker fetches and pushes only those.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/engine/engine.h"

namespace starling::engine {

// Confined to one thread, but for Descend.
class SparseEngine : public Engine {
 public:
  // The parameters that these samples use, ascending, each once. ComputeGradients reads no others,
  // and makes gradients of no others: what it leaves elsewhere means nothing.
  virtual std::vector<std::uint64_t> Touched(std::span<const float> features) const = 0;
  // Plain descent: each sample's parameters, one sample after another, go down by `rate` times the
  // gradient of its own loss, by kernels::AtomicAdd. The losses are those before each step. Several
  // threads may be in it at once, with other samples; nobody may call anything else meanwhile.
  virtual BatchSums Descend(std::span<const float> features, std::span<const int64_t> labels,
                            double rate) = 0;
  // Those that any sample uses, for validation and at the end; all others are zero.
  virtual std::span<const std::uint64_t> AllTouched() const = 0;
};

}  // namespace starling::engine
