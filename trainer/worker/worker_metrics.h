// SPDX-License-Identifier: Apache-2.0
// What a worker shows on /metrics. To add a metric: a row in api/telemetry/metric_table.cc, a
// member here, its line in the constructor, and the place that counts.
#pragma once

#include "api/telemetry/metric_table.h"
#include "common/metrics/metrics.h"
#include "trainer/observe/activity_metrics.h"
#include "trainer/transport/ledger.h"

namespace starling::worker {

// Thread-safe, but for Show. The registry outlives it.
struct WorkerMetrics {
  explicit WorkerMetrics(metrics::Registry& registry)
      : steps(telemetry::AddCounter(registry, "starling_worker_steps_total")),
        samples(telemetry::AddCounter(registry, "starling_worker_samples_total")),
        recoveries(telemetry::AddCounter(registry, "starling_worker_recoveries_total")),
        step(telemetry::AddGauge(registry, "starling_worker_step")),
        loss(telemetry::AddGauge(registry, "starling_worker_loss")),
        view(telemetry::AddGauge(registry, "starling_worker_view_epoch")),
        members(telemetry::AddGauge(registry, "starling_worker_view_members")),
        bytes_sent(telemetry::AddCounter(registry, "starling_worker_sent_bytes_total")),
        bytes_received(telemetry::AddCounter(registry, "starling_worker_received_bytes_total")),
        checkpoints_written(telemetry::AddCounter(registry, "starling_worker_checkpoints_total",
                                                  {{"result", "written"}})),
        checkpoints_failed(telemetry::AddCounter(registry, "starling_worker_checkpoints_total",
                                                 {{"result", "failed"}})),
        refused(telemetry::AddCounter(registry, "starling_worker_refused_pushes_total")),
        checkpoint_seconds(telemetry::AddHistogram(registry, "starling_worker_checkpoint_seconds")),
        exchange_seconds(telemetry::AddHistogram(registry, "starling_worker_exchange_seconds")),
        fetch_seconds(telemetry::AddHistogram(registry, "starling_worker_fetch_seconds")),
        step_seconds(telemetry::AddHistogram(registry, "starling_worker_step_seconds")),
        recovery_seconds(telemetry::AddHistogram(registry, "starling_worker_recovery_seconds")),
        activities(registry, "starling_worker_activity_seconds_total") {}

  // What others count, up to now. By one thread at a time.
  void Show(const observe::Seconds& seconds, const transport::Traffic& traffic) {
    activities.Show(seconds);
    bytes_sent.Increment(static_cast<double>(traffic.payload_sent + traffic.header_sent) -
                         bytes_sent.Value());
    bytes_received.Increment(
        static_cast<double>(traffic.payload_received + traffic.header_received) -
        bytes_received.Value());
  }

  metrics::Counter steps;
  metrics::Counter samples;
  metrics::Counter recoveries;
  metrics::Gauge step;
  metrics::Gauge loss;
  metrics::Gauge view;
  metrics::Gauge members;
  metrics::Counter bytes_sent;
  metrics::Counter bytes_received;
  metrics::Counter checkpoints_written;
  metrics::Counter checkpoints_failed;
  metrics::Counter refused;
  metrics::Histogram checkpoint_seconds;
  metrics::Histogram exchange_seconds;
  metrics::Histogram fetch_seconds;
  metrics::Histogram step_seconds;
  metrics::Histogram recovery_seconds;
  observe::ActivityMetrics activities;
};

}  // namespace starling::worker
