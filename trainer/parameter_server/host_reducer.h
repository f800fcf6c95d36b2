// SPDX-License-Identifier: Apache-2.0
// The first level of a two-level store (MXNet's KVStore): whoever computes on one host (threads,
// devices) adds its gradient here, and one push of their weighted mean leaves the host for all of
// them. To the servers the host is one client.
//
// The sum is made in the order of the participants, whoever came first, so its bits do not depend
// on the threads' luck. What a leaf of a tree of aggregators (Rudra) does is the same.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "common/sync/mutex.h"

namespace starling::parameter_server {

// Thread-safe.
class HostReducer {
 public:
  HostReducer(std::size_t participants, std::size_t floats)
      : floats_(floats), parts_(participants) {}

  struct Reduced {
    std::vector<float> gradient;  // the mean, weighted by samples
    double weight = 0;            // samples in it
  };

  // A participant's gradient of this round: the whole host's when it is the last one to come, else
  // nothing. A second one of a participant before the round is complete replaces its first.
  std::optional<Reduced> Add(std::size_t participant, std::span<const float> gradient,
                             double weight);

 private:
  struct Part {
    std::vector<float> gradient;
    double weight = 0;
    bool here = false;
  };

  const std::size_t floats_;
  sync::Mutex mutex_;
  std::vector<Part> parts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::parameter_server
