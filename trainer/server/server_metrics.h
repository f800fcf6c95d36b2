// SPDX-License-Identifier: Apache-2.0
// What a parameter server shows on /metrics. To add a metric: a row in
// api/telemetry/metric_table.cc, a member here, its line in the constructor, and the place that
// counts.
#pragma once

#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "trainer/parameter_server/server_loop.h"
#include "trainer/transport/ledger.h"

namespace starling::server {

// Confined to one thread. The registry outlives it.
class ServerMetrics {
 public:
  explicit ServerMetrics(metrics::Registry& registry);

  void Watch(const parameter_server::ServerLoop& loop, const transport::Traffic& traffic);
  void OnSnapshots(std::int64_t written, std::int64_t failures, absl::Time newest);
  // For the executors: any thread.
  metrics::Histogram apply_seconds() const { return apply_seconds_; }

 private:
  // What was counted when last looked at.
  struct Seen {
    std::int64_t index = 0;
    std::map<consistency::Version, std::int64_t> staleness;
  };
  void WatchShard(std::size_t at, const parameter_server::ShardStatus& shard);
  void WatchStaleness(Seen& seen, const std::map<consistency::Version, std::int64_t>& counts);

  parameter_server::ServerCounts counts_;
  std::vector<Seen> seen_;

  metrics::Counter pushes_;
  metrics::Counter pulls_;
  metrics::Counter updates_;
  metrics::Counter sent_;
  metrics::Counter received_;
  metrics::Histogram apply_seconds_;
  metrics::Histogram staleness_;
  metrics::Gauge shards_;
  metrics::Gauge answers_;
  metrics::Gauge bytes_;
  metrics::Gauge load_;
  metrics::Gauge leases_;
  metrics::Gauge view_;
  metrics::Counter snapshots_;
  metrics::Counter snapshot_failures_;
  metrics::Gauge newest_snapshot_;
};

}  // namespace starling::server
