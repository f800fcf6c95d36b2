// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/server_metrics.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "api/telemetry/metric_table.h"

namespace starling::server {

using parameter_server::ServerPhase;
using parameter_server::SlotStatus;

ServerMetrics::ServerMetrics(metrics::Registry& registry)
    : pushes_(telemetry::AddCounter(registry, "starling_server_pushes_total")),
      pulls_(telemetry::AddCounter(registry, "starling_server_pulls_total")),
      updates_(telemetry::AddCounter(registry, "starling_server_updates_total")),
      sent_(telemetry::AddCounter(registry, "starling_server_sent_bytes_total")),
      received_(telemetry::AddCounter(registry, "starling_server_received_bytes_total")),
      apply_seconds_(telemetry::AddHistogram(registry, "starling_server_apply_seconds")),
      staleness_(telemetry::AddHistogram(registry, "starling_server_staleness_updates")),
      slots_(telemetry::AddGauge(registry, "starling_server_slots")),
      answers_(telemetry::AddGauge(registry, "starling_server_answering_slots")),
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
  seen_.resize(loop.slots());
  int held = 0, open = 0;
  std::uint64_t bytes = 0;
  std::int64_t load = 0;
  const double now = parameter_server::ServerLoop::Seconds();
  std::uint64_t leases = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t at = 0; at < loop.slots(); ++at) {
    const std::shared_ptr<const SlotStatus> status = loop.status(at);
    const SlotStatus& slot = *status;
    WatchSlot(at, slot);
    held += slot.phase == ServerPhase::kRun ? 1 : 0;
    bytes += slot.bytes;
    load += slot.load.PerSecond(now);
    if (!slot.open) continue;
    ++open;
    std::uint64_t done = 0;
    for (const auto& [first, end] : slot.ledger.intervals()) done += end - first;
    // The course has no leases.
    if (done > 0) leases = std::min(leases, done);
  }
  slots_.Set(held);
  answers_.Set(open);
  bytes_.Set(static_cast<double>(bytes));
  load_.Set(static_cast<double>(load));
  leases_.Set(leases == std::numeric_limits<std::uint64_t>::max() ? 0
                                                                  : static_cast<double>(leases));
  if (loop.slots() > 0) {
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

// A slot that was copied or restored begins anew: what others applied is not counted here.
void ServerMetrics::WatchSlot(std::size_t at, const SlotStatus& slot) {
  Seen& seen = seen_[at];
  if (!slot.state) {
    seen = Seen();
    return;
  }
  // The course has no leases, and what is put there was computed from no version of it.
  if (!slot.ledger.intervals().empty()) WatchStaleness(seen, slot.staleness);
  if (seen.index > 0 && slot.index > seen.index) {
    updates_.Increment(static_cast<double>(slot.index - seen.index));
  }
  seen.index = slot.index;
}

}  // namespace starling::server
