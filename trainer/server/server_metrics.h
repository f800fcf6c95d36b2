// SPDX-License-Identifier: Apache-2.0
// What a parameter server shows on /metrics. To add a metric: a member here, its line in the
// constructor, and the place that counts.
#pragma once

#include <map>
#include <vector>

#include "common/metrics/metrics.h"
#include "trainer/parameter_server/server_loop.h"
#include "trainer/transport/ledger.h"

namespace starling::server {

// Confined to one thread. The registry outlives it.
class ServerMetrics {
 public:
  explicit ServerMetrics(metrics::Registry& registry)
      : pushes_(registry.AddCounter("starling_server_pushes_total",
                                    "Pushes received as the head of a slot, retries included.")),
        pulls_(registry.AddCounter("starling_server_pulls_total",
                                   "Reads received as the tail of a slot, retries included.")),
        updates_(registry.AddCounter("starling_server_updates_total",
                                     "Log entries applied, all slots.")),
        sent_(registry.AddGauge("starling_server_sent_bytes",
                                "Bytes sent on the data plane, headers included.")),
        received_(registry.AddGauge("starling_server_received_bytes",
                                    "Bytes received on the data plane, headers included.")),
        staleness_(registry.AddHistogram("starling_server_staleness_updates",
                                         "Updates between a push's read and its being applied.", {},
                                         {0, 1, 2, 4, 8, 16, 32, 64, 128})),
        slots_(registry.AddGauge("starling_server_slots", "Slots held in the present view.")),
        answers_(registry.AddGauge("starling_server_answering_slots",
                                   "Slots that this server answers for.")),
        bytes_(registry.AddGauge("starling_server_held_bytes",
                                 "Parameters and what the rule keeps beside them.")),
        load_(
            registry.AddGauge("starling_server_load_bytes_per_second",
                              "Updates taken and values read, all slots, smoothed over seconds.")),
        leases_(registry.AddGauge("starling_server_ledger_leases",
                                  "Leases in the shortest ledger of the slots answered for.")),
        view_(registry.AddGauge("starling_server_view_epoch", "Epoch of the present view.")),
        snapshots_(registry.AddGauge("starling_server_snapshots", "Snapshots of slots written.")),
        snapshot_failures_(registry.AddGauge("starling_server_snapshot_failures",
                                             "Snapshots that could not be written.")),
        snapshot_age_(registry.AddGauge("starling_server_snapshot_age_seconds",
                                        "Since the newest snapshot was written; -1: none.")) {}

  void Watch(const parameter_server::ServerLoop& loop, const transport::Traffic& traffic);
  void OnSnapshots(std::int64_t written, std::int64_t failures, double age_seconds) {
    snapshots_.Set(static_cast<double>(written));
    snapshot_failures_.Set(static_cast<double>(failures));
    snapshot_age_.Set(age_seconds);
  }

 private:
  // What was counted when last looked at.
  struct Seen {
    std::int64_t index = 0;
    std::map<consistency::Version, std::int64_t> staleness;
  };
  void WatchSlot(std::size_t at, const parameter_server::SlotStatus& slot);
  void WatchStaleness(Seen& seen, const std::map<consistency::Version, std::int64_t>& counts);

  parameter_server::ServerCounts counts_;
  std::vector<Seen> seen_;

  metrics::Counter pushes_;
  metrics::Counter pulls_;
  metrics::Counter updates_;
  metrics::Gauge sent_;
  metrics::Gauge received_;
  metrics::Histogram staleness_;
  metrics::Gauge slots_;
  metrics::Gauge answers_;
  metrics::Gauge bytes_;
  metrics::Gauge load_;
  metrics::Gauge leases_;
  metrics::Gauge view_;
  metrics::Gauge snapshots_;
  metrics::Gauge snapshot_failures_;
  metrics::Gauge snapshot_age_;
};

}  // namespace starling::server
