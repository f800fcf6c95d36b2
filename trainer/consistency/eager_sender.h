// SPDX-License-Identifier: Apache-2.0
// Managed communication (Wei et al. 2015, "Bosen"): updates travel before their clock ends, as far
// as a bandwidth budget allows, the most useful first.
//
// The same machine serves both directions: a client's updates on their way to the servers, and
// changed rows on their way back. Early sending only ever adds to what stale synchronous promises:
// at the end of a clock whatever is left goes too, under the same budget, and the clock ends when
// nothing is left. The caller owns the bytes; here are rows' names, sizes and magnitudes.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "absl/time/time.h"
#include "trainer/consistency/consistency.h"

namespace starling::consistency {

// Thread-compatible.
class EagerSender {
 public:
  struct Options {
    // Infinite: there is no budget, and all goes at once, in the order of the rows' numbers.
    double bytes_per_second = 5e6;
    // What may be saved up while there is nothing to send: the rate over any one second exceeds
    // the budget by at most this share.
    double burst = 0.04;
    Priority priority = Priority::kRelativeMagnitude;
    std::uint64_t seed = 1;
  };

  explicit EagerSender(const Options& options);

  // Row `row` has changed by a delta of this norm and `bytes` on the wire; `value` is the norm of
  // the row itself. Changes of one row that has not been sent yet become one.
  void OnUpdate(std::uint64_t row, double delta, double value, std::int64_t bytes);
  // The rows to send now, best first; they are no longer pending. A row that is larger than what
  // may be saved up is sent alone and paid off afterwards.
  std::vector<std::uint64_t> Take(absl::Time now);
  // All that is pending, whatever the budget.
  std::vector<std::uint64_t> TakeAll();
  // When Take may give something again; the infinite future if nothing is pending.
  absl::Time Next(absl::Time now) const;

  bool empty() const { return pending_.empty(); }
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Row {
    double delta = 0;
    double value = 0;
    std::int64_t bytes = 0;
    std::int64_t order = 0;
  };
  void Refill(absl::Time now);
  std::map<std::uint64_t, Row>::iterator Best();

  const Options options_;
  std::mt19937_64 random_;
  std::map<std::uint64_t, Row> pending_;
  std::int64_t next_order_ = 0;
  double credit_;  // bytes; below zero: a debt to be paid before the next row
  absl::Time refilled_ = absl::InfinitePast();
  std::int64_t bytes_sent_ = 0;
};

}  // namespace starling::consistency
