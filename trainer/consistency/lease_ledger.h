// SPDX-License-Identifier: Apache-2.0
// Which data leases a shard has taken. Leases are numbered from 1 (the first values of parameters;
// from 2 on they are portions of batches) and mostly done in order, so intervals hold millions of
// them in a few numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "common/bytes/encoding.h"

namespace starling::consistency {

using Lease = std::uint64_t;  // 0: none
inline constexpr Lease kFirstPortion = 2;

// So many leases, from the first on.
struct LeaseRun {
  Lease first = 0;
  Lease count = 1;
  LeaseRun(Lease lease, Lease leases = 1) : first(lease), count(leases) {}  // NOLINT: one is a run
  Lease end() const { return first + count; }
  bool operator==(const LeaseRun&) const = default;
};

// Thread-compatible.
class LeaseLedger {
 public:
  void Add(Lease lease) {
    auto after = intervals_.upper_bound(lease);
    if (after != intervals_.begin()) {
      const auto before = std::prev(after);
      if (lease < before->second) return;
      if (lease == before->second) {
        ++before->second;
        Join(before, after);
        return;
      }
    }
    const auto added = intervals_.emplace_hint(after, lease, lease + 1);
    Join(added, after);
  }
  // All of [first, end).
  void Add(Lease first, Lease end) {
    if (first >= end) return;
    auto at = intervals_.upper_bound(first);
    if (at != intervals_.begin() && std::prev(at)->second >= first) --at;
    while (at != intervals_.end() && at->first <= end) {
      first = std::min(first, at->first);
      end = std::max(end, at->second);
      at = intervals_.erase(at);
    }
    intervals_.emplace_hint(at, first, end);
  }
  bool Has(Lease lease) const {
    const auto after = intervals_.upper_bound(lease);
    return after != intervals_.begin() && lease < std::prev(after)->second;
  }
  // The lowest from `lease` on that is not in it.
  Lease NotIn(Lease lease) const {
    const auto after = intervals_.upper_bound(lease);
    const bool in = after != intervals_.begin() && lease < std::prev(after)->second;
    return in ? std::prev(after)->second : lease;
  }
  // How many of [first, end) are in it.
  Lease CountIn(Lease first, Lease end) const {
    Lease count = 0;
    for (; first < end; ++first) count += Has(first) ? 1 : 0;
    return count;
  }
  void Clear() { intervals_.clear(); }
  // [first, end) of each run.
  const std::map<Lease, Lease>& intervals() const { return intervals_; }

  void Save(bytes::Writer& out) const {
    out.Put(static_cast<std::uint64_t>(intervals_.size()));
    for (const auto& [first, end] : intervals_) {
      out.Put(first);
      out.Put(end);
    }
  }
  void Load(bytes::Reader& in) {
    intervals_.clear();
    for (std::uint64_t left = in.GetCount(16); left > 0; --left) {
      const auto first = in.Get<Lease>();
      intervals_[first] = in.Get<Lease>();
    }
  }

 private:
  using Interval = std::map<Lease, Lease>::iterator;
  void Join(Interval interval, Interval after) {
    if (after == intervals_.end() || interval->second != after->first) return;
    interval->second = after->second;
    intervals_.erase(after);
  }

  std::map<Lease, Lease> intervals_;
};

}  // namespace starling::consistency
