// SPDX-License-Identifier: Apache-2.0
// How many bytes of gradients are summed up at a time: found while training.
//
// Few large sums cost few rounds of messages; many small ones begin earlier, beside the backward
// pass. Which is faster depends on the model, the links and the processors, so it is tried out: the
// first steps of a view merge neighbouring buckets to one size after another, and the size with
// which steps are shortest is kept until the view ends.
//
// All ranks must merge alike, or they would wait for one another for ever. So a choice goes by what
// all ranks know alike: how long the slowest of them took for a step, which they learn with the
// control word of the next one. This class is a function of those numbers and reads no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/ranges/ranges.h"

namespace starling::exchange {

// Sizes that are tried, in bytes: the least one, by which buckets are cut, and each the double of
// the one before.
inline constexpr std::size_t kLeastMerged = std::size_t{1} << 20;
inline constexpr std::size_t kMostMerged = std::size_t{64} << 20;

// Not thread-safe.
class BucketTuner {
 public:
  // `bucket_bytes` in the order in which buckets are summed up. Each travels by itself until Begin
  // says otherwise.
  explicit BucketTuner(const std::vector<std::size_t>& bucket_bytes);

  // A view begins. `tune`: else, or where there is nothing to choose (all are no larger than the
  // least size together), each bucket travels by itself.
  void Begin(bool tune);

  // Whether sizes are still being tried out: then all ranks tell how long their steps take.
  bool trying() const { return step_ < end_; }
  // Consecutive buckets that the next step sums up at once; all of them.
  const std::vector<ranges::Range<int>>& merged() const { return plans_[present_].merged; }
  // The size that was found to be the best, which all but the last have at least; 0: none was.
  std::size_t chosen() const { return end_ > 0 && !trying() ? plans_[present_].bytes : 0; }

  // While trying: a step with `merged` has ended. The one before it took the slowest rank so long,
  // in any unit; of a view's first step the number is not looked at.
  void Ended(std::int64_t before);

 private:
  struct Plan {
    std::size_t bytes = kLeastMerged;
    std::vector<ranges::Range<int>> merged;
    std::vector<std::int64_t> took = {};
  };

  std::size_t PlanOf(int step) const;
  bool Counts(int step) const;
  void Choose();

  std::vector<Plan> plans_;  // from the smallest size to the largest; one at least
  std::size_t present_ = 0;
  int step_ = 0;  // of the view, from 0
  int end_ = 0;   // when it is decided
};

}  // namespace starling::exchange
