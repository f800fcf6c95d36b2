// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/aggregator.h"

#include <algorithm>
#include <utility>

#include "trainer/kernels/span_math.h"

namespace starling::parameter_server {
namespace {

constexpr std::uint64_t kMostSpread = 16;  // rows of a sum to those of its parts

// The rows that some part has values for.
struct Covered {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  std::uint64_t rows = 0;  // of all parts together
  std::size_t width = 1;

  void Add(const Update& update) {
    if (update.rows == 0) return;
    if (first == end) first = update.first;
    first = std::min(first, update.first);
    end = std::max(end, update.first + update.rows);
    rows += update.rows;
    width = update.values.size() / update.rows;
  }
};

Constituent PartOf(const Entry& entry) {
  return {entry.client, entry.sequence,  entry.lease, entry.leases,
          entry.clock,  entry.completes, entry.read,  entry.weight};
}

}  // namespace

std::optional<Entry> Aggregate(const Client& self, const std::map<Client, Entry>& parts,
                               const Reduction& reduction) {
  Entry whole;
  whole.kind = EntryKind::kAggregate;
  whole.client = self;
  std::vector<DecodedUpdate> updates;
  Covered covered;
  double total = 0;
  for (const auto& [client, entry] : parts) {
    whole.parts.push_back(PartOf(entry));
    if (!entry.update) return std::nullopt;
    absl::StatusOr<DecodedUpdate> update = Decode(entry.update, 1);
    if (!update.ok() || update->update.kind != UpdateKind::kRange) return std::nullopt;
    covered.Add(update->update);
    updates.push_back(*std::move(update));
    total += entry.weight;
  }
  if (parts.size() == 1) {
    whole.update = parts.begin()->second.update;
    return whole;
  }
  // Between parts that lie far apart the sum would be zeros, as many as whoever pushes likes.
  if ((covered.end - covered.first) / kMostSpread > covered.rows) return std::nullopt;
  if (covered.first == covered.end) covered.first = covered.end = updates.front().update.first;
  std::vector<float> sum((covered.end - covered.first) * covered.width);
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const Update& update = updates[i].update;
    if (update.rows == 0) continue;
    if (update.values.size() != update.rows * covered.width) return std::nullopt;
    const std::size_t at = (update.first - covered.first) * covered.width;
    const double share = total > 0 ? whole.parts[i].weight / total : 0;
    kernels::Axpy(reduction.sum ? 1.0F : static_cast<float>(share), update.values,
                  std::span(sum).subspan(at, update.values.size()));
  }
  whole.update =
      Encode({UpdateKind::kRange, 0, covered.first, covered.end - covered.first, {}, sum, {}},
             updates.front().from->codec);
  return whole;
}

void Aggregator::OnView(const Client& self, const std::vector<MemberId>& group,
                        const std::vector<std::optional<Reduction>>& reductions) {
  self_ = self;
  group_ = expected_ = {group.begin(), group.end()};
  reductions_ = reductions;
  shards_.assign(reductions.size(), {});
}

bool Aggregator::Complete(const Parts& parts) const {
  return std::all_of(expected_.begin(), expected_.end(), [&](const MemberId& member) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const auto& part) { return part.first.id == member; });
  });
}

// Of each client one push, and where the model wants it all of one clock.
bool Aggregator::Fits(std::size_t shard, const Parts& parts, const Entry& entry) const {
  if (parts.contains(entry.client)) return false;
  return !reductions_[shard]->one_clock || std::ranges::all_of(parts, [&](const auto& part) {
    return part.second.clock == entry.clock;
  });
}

std::vector<Gathered> Aggregator::Add(std::size_t shard, const Entry& entry) {
  std::vector<Gathered> gathered;
  if (shard >= shards_.size() || !reductions_[shard] || !group_.contains(entry.client.id)) {
    return gathered;
  }
  expected_.insert(entry.client.id);
  Parts& parts = shards_[shard];
  if (!Fits(shard, parts, entry)) Take(shard, gathered);
  parts[entry.client] = entry;
  if (Complete(parts)) Take(shard, gathered);
  return gathered;
}

std::vector<Gathered> Aggregator::Leave(const MemberId& member, bool withdraws) {
  std::vector<Gathered> gathered;
  expected_.erase(member);
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    Parts& parts = shards_[shard];
    if (withdraws) std::erase_if(parts, [&](const auto& part) { return part.first.id == member; });
    if (Complete(parts)) Take(shard, gathered);
  }
  return gathered;
}

std::vector<Gathered> Aggregator::Flush() {
  std::vector<Gathered> gathered;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) Take(shard, gathered);
  return gathered;
}

std::uint64_t Aggregator::gathering() const {
  const bool some = std::any_of(shards_.begin(), shards_.end(),
                                [](const Parts& parts) { return !parts.empty(); });
  return some ? taken_ + 1 : 0;
}

void Aggregator::Take(std::size_t shard, std::vector<Gathered>& gathered) {
  const Parts parts = std::exchange(shards_[shard], {});
  if (parts.empty()) return;
  ++taken_;
  if (parts.size() == 1 && parts.begin()->first == self_) {
    gathered.push_back({shard, parts.begin()->second});
    return;
  }
  if (std::optional<Entry> whole = Aggregate(self_, parts, *reductions_[shard])) {
    gathered.push_back({shard, *std::move(whole)});
    return;
  }
  // They do not add up: each by itself, as far as one may speak for others.
  for (const auto& [client, entry] : parts) {
    Entry alone;
    alone.kind = EntryKind::kAggregate;
    alone.client = self_;
    alone.parts = {PartOf(entry)};
    alone.update = entry.update;
    gathered.push_back({shard, std::move(alone)});
  }
}

}  // namespace starling::parameter_server
