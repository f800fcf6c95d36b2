// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/controller_metrics.h"

#include "api/telemetry/metric_table.h"

namespace starling::runtime {

QueueMetrics AddQueueMetrics(metrics::Registry& registry, const std::string& name) {
  const metrics::Labels labels = {{"name", name}, {"controller", name}};
  QueueMetrics queue;
  queue.depth = telemetry::AddGauge(registry, "workqueue_depth", labels);
  queue.adds = telemetry::AddCounter(registry, "workqueue_adds_total", labels);
  queue.retries = telemetry::AddCounter(registry, "workqueue_retries_total", labels);
  queue.queue_seconds =
      telemetry::AddHistogram(registry, "workqueue_queue_duration_seconds", labels);
  queue.work_seconds = telemetry::AddHistogram(registry, "workqueue_work_duration_seconds", labels);
  queue.unfinished = telemetry::AddGauge(registry, "workqueue_unfinished_work_seconds", labels);
  queue.longest =
      telemetry::AddGauge(registry, "workqueue_longest_running_processor_seconds", labels);
  return queue;
}

ReconcileMetrics AddReconcileMetrics(metrics::Registry& registry, const std::string& controller) {
  const auto total = [&](const char* result) {
    return telemetry::AddCounter(registry, "controller_runtime_reconcile_total",
                                 {{"controller", controller}, {"result", result}});
  };
  const metrics::Labels labels = {{"controller", controller}};
  ReconcileMetrics reconcile;
  reconcile.success = total("success");
  reconcile.requeue_after = total("requeue_after");
  reconcile.error = total("error");
  reconcile.errors =
      telemetry::AddCounter(registry, "controller_runtime_reconcile_errors_total", labels);
  reconcile.seconds =
      telemetry::AddHistogram(registry, "controller_runtime_reconcile_time_seconds", labels);
  reconcile.active = telemetry::AddGauge(registry, "controller_runtime_active_workers", labels);
  reconcile.most =
      telemetry::AddGauge(registry, "controller_runtime_max_concurrent_reconciles", labels);
  return reconcile;
}

}  // namespace starling::runtime
