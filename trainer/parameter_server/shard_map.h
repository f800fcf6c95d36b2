// SPDX-License-Identifier: Apache-2.0
// Which servers hold which slots: slots are placed on chains of servers by consistent hashing. A
// pure function: whoever has the view has the map. job_tables.h cuts tables into slots.
//
// Placement is by rendezvous (Thaler and Ravishankar 1998): each slot ranks all servers by a hash
// of both and takes the first `replication` that are not full. Who joins takes over about 1/N of
// the bytes, from everybody; who leaves gives up only its own. Full is 15% above the mean, by
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

// Head first.
using Chains = std::map<SlotId, std::vector<membership::MemberId>>;

// `weights`: of a slot without one, 1. With fewer servers than `replication` chains are as long as
// there are servers.
Chains Place(const std::vector<SlotId>& slots, const std::vector<membership::MemberId>& servers,
             const std::map<SlotId, double>& weights, int replication);

}  // namespace starling::parameter_server
