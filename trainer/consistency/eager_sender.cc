// SPDX-License-Identifier: Apache-2.0
#include "trainer/consistency/eager_sender.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace starling::consistency {
namespace {

constexpr double kTiny = 1e-12;  // a row that is still zero comes first

}  // namespace

EagerSender::EagerSender(const Options& options)
    : options_(options), random_(options.seed), credit_(options.bytes_per_second * options.burst) {}

void EagerSender::OnUpdate(std::uint64_t row, double delta, double value, std::int64_t bytes) {
  const auto [pending, added] = pending_.try_emplace(row);
  if (added) pending->second.order = next_order_++;
  pending->second.delta += delta;
  pending->second.value = value;
  pending->second.bytes = bytes;
}

void EagerSender::Refill(absl::Time now) {
  if (refilled_ != absl::InfinitePast()) {
    credit_ += absl::ToDoubleSeconds(now - refilled_) * options_.bytes_per_second;
  }
  credit_ = std::min(credit_, options_.bytes_per_second * options_.burst);
  refilled_ = now;
}

std::map<std::uint64_t, EagerSender::Row>::iterator EagerSender::Best() {
  if (options_.priority == Priority::kRandom) {
    return std::next(pending_.begin(), static_cast<std::ptrdiff_t>(random_() % pending_.size()));
  }
  if (options_.priority == Priority::kFifo) {
    return std::ranges::min_element(pending_, {}, [](const auto& one) { return one.second.order; });
  }
  return std::ranges::max_element(pending_, {}, [](const auto& one) {
    return one.second.delta / std::max(one.second.value, kTiny);
  });
}

std::vector<std::uint64_t> EagerSender::Take(absl::Time now) {
  if (std::isinf(options_.bytes_per_second)) return TakeAll();
  Refill(now);
  const double most = options_.bytes_per_second * options_.burst;
  std::vector<std::uint64_t> rows;
  while (!pending_.empty()) {
    const auto best = Best();
    const auto bytes = static_cast<double>(best->second.bytes);
    if (credit_ < std::min(bytes, most)) break;
    credit_ -= bytes;
    bytes_sent_ += best->second.bytes;
    rows.push_back(best->first);
    pending_.erase(best);
  }
  return rows;
}

std::vector<std::uint64_t> EagerSender::TakeAll() {
  std::vector<std::uint64_t> rows;
  for (const auto& [row, what] : std::exchange(pending_, {})) {
    rows.push_back(row);
    bytes_sent_ += what.bytes;
  }
  return rows;
}

absl::Time EagerSender::Next(absl::Time now) const {
  if (pending_.empty()) return absl::InfiniteFuture();
  std::int64_t largest = 0;
  for (const auto& [row, pending] : pending_) largest = std::max(largest, pending.bytes);
  const double needed =
      std::min(static_cast<double>(largest), options_.bytes_per_second * options_.burst) - credit_;
  return std::max(now, std::max(refilled_, absl::UnixEpoch()) +
                           absl::Seconds(std::max(0.0, needed) / options_.bytes_per_second));
}

}  // namespace starling::consistency
