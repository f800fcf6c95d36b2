// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/server_metrics.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "api/telemetry/metric_table.h"

namespace starling::server {

using parameter_server::ServerPhase;
using parameter_server::ShardStatus;

ServerMetrics::ServerMetrics(metrics::Registry& registry)
    : pushes_(telemetry::AddCounter(registry, "starling_server_pushes_total")),
      pulls_(telemetry::AddCounter(registry, "starling_server_pulls_total")),
      updates_(telemetry::AddCounter(registry, "starling_server_updates_total")),
      sent_(telemetry::AddCounter(registry, "starling_server_sent_bytes_total")),
      received_(telemetry::AddCounter(registry, "starling_server_received_bytes_total")),
      apply_seconds_(telemetry::AddHistogram(registry, "starling_server_apply_seconds")),
      staleness_(telemetry::AddHistogram(registry, "starling_server_staleness_updates")),
      shards_(telemetry::AddGauge(registry, "starling_server_shards")),
      answers_(telemetry::AddGauge(registry, "starling_server_answering_shards")),
      bytes_(telemetry::AddGauge(registry, "starling_server_held_bytes")),
      load_(telemetry::AddGauge(registry, "starling_server_load_bytes_per_second")),
      leases_(telemetry::AddGauge(registry, "starling_server_ledger_leases")),
      view_(telemetry::AddGauge(registry, "starling_server_view_epoch")),
      snapshots_(telemetry::AddCounter(registry, "starling_server_snapshots_total",
                                       {{"result", "written"}})),
      snapshot_failures_(telemetry::AddCounter(registry, "starling_server_snapshots_total",
                                               {{"result", "failed"}})),
      newest_snapshot_(
          telemetry::AddGauge(registry, "starling_server_last_snapshot_timestamp_seconds")) {}

void ServerMetrics::OnSnapshots(std::int64_t written, std::int64_t failures, absl::Time newest) {
  snapshots_.Increment(static_cast<double>(written) - snapshots_.Value());
  snapshot_failures_.Increment(static_cast<double>(failures) - snapshot_failures_.Value());
  newest_snapshot_.Set(written == 0 ? 0 : absl::ToDoubleSeconds(newest - absl::UnixEpoch()));
}

void ServerMetrics::Watch(const parameter_server::ServerLoop& loop,
                          const transport::Traffic& traffic) {
  const parameter_server::ServerCounts& counts = loop.counts();
  pushes_.Increment(static_cast<double>(counts.pushes - counts_.pushes));
  pulls_.Increment(static_cast<double>(counts.reads - counts_.reads));
  counts_ = counts;
  const auto sent = static_cast<double>(traffic.payload_sent + traffic.header_sent);
  sent_.Increment(sent - sent_.Value());
  const auto received = static_cast<double>(traffic.payload_received + traffic.header_received);
  received_.Increment(received - received_.Value());
  seen_.resize(loop.shards());
  int held = 0, open = 0;
  std::uint64_t bytes = 0;
  std::int64_t load = 0;
  const double now = parameter_server::ServerLoop::Seconds();
  std::uint64_t leases = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t at = 0; at < loop.shards(); ++at) {
    const std::shared_ptr<const ShardStatus> status = loop.status(at);
    const ShardStatus& shard = *status;
    WatchShard(at, shard);
    held += shard.phase == ServerPhase::kRun ? 1 : 0;
    bytes += shard.bytes;
    load += shard.load.PerSecond(now);
    if (!shard.open) continue;
    ++open;
    std::uint64_t done = 0;
    for (const auto& [first, end] : shard.ledger.intervals()) done += end - first;
    // The course has no leases.
    if (done > 0) leases = std::min(leases, done);
  }
  shards_.Set(held);
  answers_.Set(open);
  bytes_.Set(static_cast<double>(bytes));
  load_.Set(static_cast<double>(load));
  leases_.Set(leases == std::numeric_limits<std::uint64_t>::max() ? 0
                                                                  : static_cast<double>(leases));
  if (loop.shards() > 0) {
    view_.Set(static_cast<double>(membership::EpochOf(loop.status(0)->fence)));
  }
}

void ServerMetrics::WatchStaleness(Seen& seen,
                                   const std::map<consistency::Version, std::int64_t>& counts) {
  std::int64_t applied = 0;
  for (const auto& [staleness, count] : counts) applied += count;
  std::int64_t known = 0;
  for (const auto& [staleness, count] : seen.staleness) known += count;
  if (applied < known) seen.staleness.clear();
  for (const auto& [staleness, count] : counts) {
    std::int64_t& before = seen.staleness[staleness];
    for (; before < count; ++before) staleness_.Observe(static_cast<double>(staleness));
  }
}

// A shard that was copied or restored begins anew: what others applied is not counted here.
void ServerMetrics::WatchShard(std::size_t at, const ShardStatus& shard) {
  Seen& seen = seen_[at];
  if (!shard.state) {
    seen = Seen();
    return;
  }
  // The course has no leases, and what is put there was computed from no version of it.
  if (!shard.ledger.intervals().empty()) WatchStaleness(seen, shard.staleness);
  if (seen.index > 0 && shard.index > seen.index) {
    updates_.Increment(static_cast<double>(shard.index - seen.index));
  }
  seen.index = shard.index;
}

}  // namespace starling::server
