// SPDX-License-Identifier: Apache-2.0
// What a process shows of its seconds on /metrics.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "api/telemetry/metric_table.h"
#include "common/metrics/metrics.h"
#include "trainer/observe/stopwatch.h"

namespace starling::observe {

// Confined to one thread at a time. The registry outlives it.
class ActivityMetrics {
 public:
  // `name`: of a counter by `activity`.
  ActivityMetrics(metrics::Registry& registry, std::string_view name) {
    for (const char* activity : kActivityNames) {
      counters_[activity] = telemetry::AddCounter(registry, name, {{"activity", activity}});
    }
  }

  // A counter never falls: seconds that turn out to have been another activity's (Stopwatch::Move)
  // stay on the first until it has caught up.
  void Show(const Seconds& seconds) {
    for (auto& [activity, counter] : counters_) {
      counter.Increment(seconds.at(activity) - counter.Value());
    }
  }

 private:
  std::map<std::string, metrics::Counter> counters_;
};

}  // namespace starling::observe
