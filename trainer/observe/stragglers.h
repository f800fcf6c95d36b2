// SPDX-License-Identifier: Apache-2.0
// Which workers the others wait for: who works longer on its own part of each step, again and
// again.
//
// Workers that make their steps together make as many in the same time, so their seconds of work in
// it can be compared as they are (dashboards/rules.yaml does the same over minutes, by the step).
// Where workers do not wait for each other all of them work all the time, and nobody is found.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/types.h"
#include "trainer/observe/stopwatch.h"

namespace starling::observe {

struct Straggler {
  membership::MemberId process;
  double ratio = 1;  // to the fastest quarter's work
};

// Thread-compatible.
class Stragglers {
 public:
  static constexpr absl::Duration kWindow = absl::Seconds(10);
  // As the alert: what is below is no outlier.
  static constexpr double kLeastRatio = 1.5;
  // Of the time; where steps are hardly any work nobody waits for it.
  static constexpr double kLeastShare = 0.05;

  // A worker's seconds since its process began.
  void OnReport(const membership::MemberId& process, const Seconds& total, absl::Time now);
  // The slowest first. Who has not reported throughout the window is not compared.
  std::vector<Straggler> Find(absl::Time now) const;

 private:
  struct Sample {
    absl::Time time;
    double busy = 0;  // seconds of work until then
  };
  std::map<membership::MemberId, std::deque<Sample>> samples_;
};

}  // namespace starling::observe
