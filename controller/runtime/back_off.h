// SPDX-License-Identifier: Apache-2.0
// How long to wait after a failure: delays that grow, each a little random, so that many who failed
// together do not come back together. Used by queues, informers and the leader's election.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace starling::runtime {

struct BackOff {
  absl::Duration first = absl::Milliseconds(10);
  absl::Duration longest = absl::Seconds(30);
  double factor = 2.0;
  double jitter = 0.2;  // each delay is lengthened by up to this share
  std::uint64_t seed = 1;
};

// The delay after the failure that had `failures` before it; `share` in [0, 1) says how much of the
// jitter is added.
absl::Duration DelayAfter(const BackOff& back_off, int failures, double share);

// Numbers in [0, 1) for delays, which need spread, not secrecy. Confined to one thread.
class Jitter {
 public:
  explicit Jitter(std::uint64_t seed) : state_(seed) {}
  double Next();

 private:
  std::uint64_t state_;
};

}  // namespace starling::runtime
