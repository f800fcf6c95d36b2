// SPDX-License-Identifier: Apache-2.0
// Downpour SGD (Dean et al. 2012): a replica fetches parameters every so many steps and pushes what
// it has gathered every so many, on top of any consistency model (DistBelief's was asynchronous).
// Between pushes it goes on with its own copy. What is pushed together is one lease
// (SamplesPerStep), and the warm start of one replica is the coordinator's (WorkPlan).
#pragma once

#include <cstdint>

namespace starling::consistency {

struct Downpour {
  std::int64_t fetch_every = 1;
  std::int64_t push_every = 1;

  // Steps count from 0, in each replica by itself. A replica that has just started, or has lost
  // what it held, fetches first.
  bool Fetches(std::int64_t step) const { return step % fetch_every == 0; }
};

}  // namespace starling::consistency
