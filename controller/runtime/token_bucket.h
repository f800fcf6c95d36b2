// SPDX-License-Identifier: Apache-2.0
// A limit on how often something may happen: so many a second, and a burst of so many at once.
//
// It only counts; who takes a token that is not there yet is told how long to wait for it. Used for
// requests to the API server and for keys that come back after failures.
#pragma once

#include "absl/time/time.h"

namespace starling::runtime {

// Thread-compatible.
class TokenBucket {
 public:
  // `per_second` 0: no limit.
  TokenBucket(double per_second, double burst) : per_second_(per_second), burst_(burst) {}

  // Takes a token and returns how long to wait before using it; zero: it is there. Tokens are given
  // in the order of the calls.
  absl::Duration Take(absl::Time now);

 private:
  const double per_second_;
  const double burst_;
  double tokens_ = 0;  // below zero: promised
  absl::Time filled_ = absl::InfinitePast();
};

}  // namespace starling::runtime
