// SPDX-License-Identifier: Apache-2.0
// An engine whose samples use few of its parameters: a worker fetches and pushes only those.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/engine/engine.h"

namespace starling::engine {

// Confined to one thread.
class SparseEngine : public Engine {
 public:
  // The parameters that these samples use, ascending, each once. ComputeGradients reads no others,
  // and makes gradients of no others: what it leaves elsewhere means nothing.
  virtual std::vector<std::uint64_t> Touched(std::span<const float> features) const = 0;
  // Those that any sample uses, for validation and at the end; all others are zero.
  virtual std::span<const std::uint64_t> AllTouched() const = 0;
};

}  // namespace starling::engine
