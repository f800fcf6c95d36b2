// SPDX-License-Identifier: Apache-2.0
// Downpour SGD (Dean et al. 2012): a replica fetches parameters every so many steps and pushes what
// it has gathered every so many, on top of any consistency model (DistBelief's was asynchronous).
// Between pushes it goes on with its own copy. Warm start: one replica trains alone first.
#pragma once

#include <cstdint>

namespace starling::consistency {

struct Downpour {
  std::int64_t fetch_every = 1;
  std::int64_t push_every = 1;
  std::int64_t warm_start_updates = 0;

  // Steps count from 0, in each replica by itself. A replica that has just started, or has lost
  // what it held, fetches first.
  bool Fetches(std::int64_t step) const { return step % fetch_every == 0; }
  // After this step, or because it is the replica's last: what is gathered must not stay behind.
  bool Pushes(std::int64_t step, bool last) const { return last || (step + 1) % push_every == 0; }
  // Whether the replica of this rank may train when the servers have made so many updates. The
  // first of the view is the one that warms up: another takes over when it dies.
  bool MayTrain(int rank, std::int64_t updates) const {
    return rank == 0 || updates >= warm_start_updates;
  }
};

}  // namespace starling::consistency
