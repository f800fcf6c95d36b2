// SPDX-License-Identifier: Apache-2.0
// What the kernel knows of this process, under the names that all Prometheus clients use, and which
// version it is.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/time/time.h"
#include "common/metrics/metrics.h"

namespace starling::telemetry {

struct ProcessFigures {
  double cpu_seconds = 0;
  double start_seconds = 0;  // after the machine's boot
  double virtual_bytes = 0;
  double resident_bytes = 0;
};

// From the text of /proc/self/stat. All zero: it is none.
ProcessFigures ReadProcessFigures(std::string_view stat, double ticks_per_second,
                                  double page_bytes);

// For how long this process has lived, from its being forked, by the kernel's clock: to a hundredth
// of a second. Reading the program and its libraries is in it.
absl::Duration ProcessAge();

// Of the programs that have no version of their own: that of the tree.
std::string_view Version();

// Confined to one thread at a time.
class ProcessMetrics {
 public:
  explicit ProcessMetrics(metrics::Registry& registry, std::string_view version = Version());
  void Update();

 private:
  metrics::Counter cpu_;
  metrics::Gauge start_;
  metrics::Gauge virtual_;
  metrics::Gauge resident_;
  metrics::Gauge open_files_;
  metrics::Gauge most_files_;
};

}  // namespace starling::telemetry
