// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/controller_metrics.h"

#include <vector>

namespace starling::runtime {
namespace {

// client-go's: ten to a power, from 10 ns to 1000 s.
const std::vector<double> kQueueBounds = {1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3,
                                          1e-2, 1e-1, 1,    10,   100,  1000};
// controller-runtime's.
const std::vector<double> kReconcileBounds = {
    0.005, 0.01, 0.025, 0.05, 0.1,  0.15, 0.2,  0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6,
    0.7,   0.8,  0.9,   1.0,  1.25, 1.5,  1.75, 2.0,  2.5, 3.0,  3.5, 4.0,  4.5, 5,
    6,     7,    8,     9,    10,   15,   20,   25,   30,  40,   50,  60};

}  // namespace

QueueMetrics AddQueueMetrics(metrics::Registry& registry, const std::string& name) {
  const metrics::Labels labels = {{"name", name}, {"controller", name}};
  QueueMetrics queue;
  queue.depth = registry.AddGauge("workqueue_depth", "Keys that wait to be reconciled.", labels);
  queue.adds = registry.AddCounter("workqueue_adds_total", "Keys added to the queue.", labels);
  queue.retries =
      registry.AddCounter("workqueue_retries_total", "Keys added again after a failure.", labels);
  queue.queue_seconds =
      registry.AddHistogram("workqueue_queue_duration_seconds",
                            "How long keys wait before a worker has them.", labels, kQueueBounds);
  queue.work_seconds = registry.AddHistogram("workqueue_work_duration_seconds",
                                             "How long workers have keys.", labels, kQueueBounds);
  queue.unfinished = registry.AddGauge(
      "workqueue_unfinished_work_seconds",
      "Seconds of work under way, summed over workers: a growing value means a stuck one.", labels);
  queue.longest = registry.AddGauge("workqueue_longest_running_processor_seconds",
                                    "For how long the slowest worker has had its key.", labels);
  return queue;
}

ReconcileMetrics AddReconcileMetrics(metrics::Registry& registry, const std::string& controller) {
  const auto total = [&](const char* result) {
    return registry.AddCounter("controller_runtime_reconcile_total", "Reconciles by result.",
                               {{"controller", controller}, {"result", result}});
  };
  const metrics::Labels labels = {{"controller", controller}};
  ReconcileMetrics reconcile;
  reconcile.success = total("success");
  reconcile.requeue_after = total("requeue_after");
  reconcile.error = total("error");
  reconcile.errors = registry.AddCounter("controller_runtime_reconcile_errors_total",
                                         "Reconciles that failed.", labels);
  reconcile.seconds = registry.AddHistogram("controller_runtime_reconcile_time_seconds",
                                            "Length of reconciles.", labels, kReconcileBounds);
  reconcile.active = registry.AddGauge("controller_runtime_active_workers",
                                       "Workers that reconcile at this moment.", labels);
  reconcile.most = registry.AddGauge("controller_runtime_max_concurrent_reconciles",
                                     "Workers that may reconcile at the same time.", labels);
  return reconcile;
}

}  // namespace starling::runtime
