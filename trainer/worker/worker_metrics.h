// SPDX-License-Identifier: Apache-2.0
// What a worker shows on /metrics. To add a metric: a member here, its line in the constructor, and
// the place that counts.
#pragma once

#include "common/metrics/metrics.h"

namespace starling::worker {

// Thread-safe. The registry outlives it.
struct WorkerMetrics {
  explicit WorkerMetrics(metrics::Registry& registry)
      : steps(registry.AddCounter("starling_worker_steps_total", "Updates applied.")),
        samples(registry.AddCounter("starling_worker_samples_total",
                                    "Samples of the batches of applied updates, all workers'.")),
        recoveries(registry.AddCounter("starling_worker_recoveries_total",
                                       "Views entered because a member was lost.")),
        step(registry.AddGauge("starling_worker_step", "Updates in the present state.")),
        loss(registry.AddGauge("starling_worker_loss", "Mean training loss of the last batch.")),
        view(registry.AddGauge("starling_worker_view_epoch", "Epoch of the present view.")),
        members(registry.AddGauge("starling_worker_view_members", "Workers in the present view.")),
        bytes_sent(registry.AddGauge("starling_worker_sent_bytes",
                                     "Bytes sent on the data plane, headers included.")),
        bytes_received(registry.AddGauge("starling_worker_received_bytes",
                                         "Bytes received on the data plane, headers included.")),
        checkpoints(registry.AddCounter("starling_worker_checkpoints_total",
                                        "Checkpoints committed by this worker.")),
        refused(registry.AddCounter("starling_worker_refused_total",
                                    "Pushes that came too late for their step (backup workers).")),
        fetch_seconds(registry.AddHistogram("starling_worker_fetch_seconds",
                                            "From asking the servers for parameters to having "
                                            "them, waits for other workers included.")),
        step_seconds(registry.AddHistogram("starling_worker_step_seconds",
                                           "From one applied update to the next.")),
        recovery_seconds(
            registry.AddHistogram("starling_worker_recovery_seconds",
                                  "From the end of a view to the first update of the next.")) {}

  metrics::Counter steps;
  metrics::Counter samples;
  metrics::Counter recoveries;
  metrics::Gauge step;
  metrics::Gauge loss;
  metrics::Gauge view;
  metrics::Gauge members;
  metrics::Gauge bytes_sent;
  metrics::Gauge bytes_received;
  metrics::Counter checkpoints;
  metrics::Counter refused;
  metrics::Histogram fetch_seconds;
  metrics::Histogram step_seconds;
  metrics::Histogram recovery_seconds;
};

}  // namespace starling::worker
