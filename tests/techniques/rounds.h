// SPDX-License-Identifier: Apache-2.0
// Synchronous training step by step, on the real shard: every step's batch is shared out over
// whoever is there, all read, all push (in any order), and one update is made of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/techniques/problem.h"

namespace starling::techniques {

struct Rounds {
  std::shared_ptr<const Problem> problem;
  std::int64_t steps = 100;
  std::uint64_t seed = 1;
  double rate = 1;
  float initial_scale = 0;
  // Samples of each worker in this step; their number is the number of workers.
  std::function<std::vector<int>(std::int64_t step)> shares;
  std::uint64_t arrival_seed = 1;  // the order in which pushes come
  bool weighted = true;            // by samples
};

// The parameters after the last step.
std::vector<float> Synchronous(const Rounds& rounds);

}  // namespace starling::techniques
