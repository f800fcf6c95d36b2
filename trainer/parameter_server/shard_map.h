// SPDX-License-Identifier: Apache-2.0
// Which servers hold which rows: tables are cut into slots, and slots are placed on chains of
// servers by consistent hashing. Pure functions: whoever has the view has the map.
//
// Placement is by rendezvous (Thaler and Ravishankar 1998): each slot ranks all servers by a hash
// of both and takes the first `replication` that are not full. Who joins takes over about 1/N of
// the bytes, from everybody; who leaves gives up only its own. Full is `slack` above the mean, by
// weight: size and load both count.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/membership/types.h"
#include "trainer/parameter_server/table.h"

namespace starling::parameter_server {

// A slot is a range of one table's rows, and keeps its name when it moves.
struct SlotId {
  std::uint32_t table = 0;
  RowRange range;
  auto operator<=>(const SlotId&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct Cutting {
  // Dense tables above this many bytes are cut into slots of at most so many; below, they stay
  // whole. (MXNet's bigarray bound is 10^6 floats.)
  std::uint64_t slot_bytes = 4'000'000;
  int hashed_slots = 16;  // for each sparse or key-value table
};

std::vector<SlotId> Cut(const std::vector<TableSpec>& tables, const Cutting& cutting);

// Slots with more than `factor` times the mean load are cut in the middle; `loads` are pushes and
// pulls per second or bytes, of any origin, and are taken to be spread evenly inside a slot. A slot
// of one row stays.
std::vector<SlotId> SplitHot(const std::vector<SlotId>& slots,
                             const std::map<SlotId, double>& loads, double factor);

// Head first.
using Chains = std::map<SlotId, std::vector<membership::MemberId>>;

struct Placement {
  int replication = 1;
  double slack = 0.15;
};

// `weights`: of a slot without one, 1. With fewer servers than `replication` chains are as long as
// there are servers.
Chains Place(const std::vector<SlotId>& slots, const std::vector<membership::MemberId>& servers,
             const std::map<SlotId, double>& weights, const Placement& placement);

// The share of all replicas' weight that is on a server in `to` that did not hold it in `from`.
double MovedShare(const Chains& from, const Chains& to, const std::map<SlotId, double>& weights);

// The slot of a row (dense) or of a key (its hash); null if none.
const SlotId* Find(const std::vector<SlotId>& slots, std::uint32_t table, std::uint64_t row);

}  // namespace starling::parameter_server
