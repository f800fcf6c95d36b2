// SPDX-License-Identifier: Apache-2.0
// The metrics of queues and controllers, under the names of controller-runtime and client-go, so
// that the dashboards and alerts that people have for other operators show this one too.
#pragma once

#include <string>

#include "common/metrics/metrics.h"

namespace starling::runtime {

// Made by default they count nothing.
struct QueueMetrics {
  metrics::Gauge depth;
  metrics::Counter adds;
  metrics::Counter retries;
  metrics::Histogram queue_seconds;
  metrics::Histogram work_seconds;
  metrics::Gauge unfinished;
  metrics::Gauge longest;
};
QueueMetrics AddQueueMetrics(metrics::Registry& registry, const std::string& name);

struct ReconcileMetrics {
  metrics::Counter success;
  metrics::Counter requeue_after;
  metrics::Counter error;
  metrics::Counter errors;  // the same, under the older name of its own
  metrics::Histogram seconds;
  metrics::Gauge active;
  metrics::Gauge most;
};
ReconcileMetrics AddReconcileMetrics(metrics::Registry& registry, const std::string& controller);

}  // namespace starling::runtime
