// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/server_metrics.h"

#include <algorithm>
#include <limits>

namespace starling::server {

using parameter_server::ChainServer;
using parameter_server::ServerPhase;

void ServerMetrics::Watch(const parameter_server::ServerLoop& loop,
                          const transport::Traffic& traffic) {
  const parameter_server::ServerCounts& counts = loop.counts();
  pushes_.Increment(static_cast<double>(counts.pushes - counts_.pushes));
  pulls_.Increment(static_cast<double>(counts.reads - counts_.reads));
  counts_ = counts;
  sent_.Set(static_cast<double>(traffic.payload_sent + traffic.header_sent));
  received_.Set(static_cast<double>(traffic.payload_received + traffic.header_received));
  seen_.resize(loop.slots());
  int held = 0, open = 0;
  std::uint64_t bytes = 0;
  std::uint64_t leases = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t at = 0; at < loop.slots(); ++at) {
    const ChainServer& slot = loop.slot(at);
    WatchSlot(at, slot);
    held += slot.phase() == ServerPhase::kRun ? 1 : 0;
    if (slot.state() != nullptr) bytes += slot.state()->bytes();
    if (!slot.open()) continue;
    ++open;
    std::uint64_t done = 0;
    for (const auto& [first, end] : slot.state()->ledger().intervals()) done += end - first;
    // The course has no leases.
    if (done > 0) leases = std::min(leases, done);
  }
  slots_.Set(held);
  answers_.Set(open);
  bytes_.Set(static_cast<double>(bytes));
  leases_.Set(leases == std::numeric_limits<std::uint64_t>::max() ? 0
                                                                  : static_cast<double>(leases));
  if (loop.slots() > 0) {
    view_.Set(static_cast<double>(membership::EpochOf(loop.slot(0).fence())));
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
void ServerMetrics::WatchSlot(std::size_t at, const ChainServer& slot) {
  Seen& seen = seen_[at];
  if (slot.state() == nullptr) {
    seen = Seen();
    return;
  }
  const parameter_server::SlotState& state = *slot.state();
  // The course has no leases, and what is put there was computed from no version of it.
  if (!state.ledger().intervals().empty()) WatchStaleness(seen, state.model().staleness().counts());
  if (seen.index > 0 && state.index() > seen.index) {
    updates_.Increment(static_cast<double>(state.index() - seen.index));
  }
  seen.index = state.index();
}

}  // namespace starling::server
