// SPDX-License-Identifier: Apache-2.0
// What the kernel knows of this process, under the names that all Prometheus clients use.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/metrics/metrics.h"

namespace starling::manager {

struct ProcessFigures {
  double cpu_seconds = 0;
  double start_seconds = 0;  // after the machine's boot
  double virtual_bytes = 0;
  double resident_bytes = 0;
};

// From the text of /proc/self/stat. All zero: it is none.
ProcessFigures ReadProcessFigures(std::string_view stat, double ticks_per_second,
                                  double page_bytes);

// Confined to one thread at a time.
class ProcessMetrics {
 public:
  explicit ProcessMetrics(metrics::Registry& registry);
  void Update();

 private:
  metrics::Counter cpu_;
  metrics::Gauge start_;
  metrics::Gauge virtual_;
  metrics::Gauge resident_;
  metrics::Gauge open_files_;
  metrics::Gauge most_files_;
};

}  // namespace starling::manager
