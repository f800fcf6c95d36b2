// SPDX-License-Identifier: Apache-2.0
// Which servers hold which shards: shards are placed on chains of servers by consistent hashing. A
// pure function: whoever has the view has the map. job_tables.h cuts tables into shards.
//
// Placement is by rendezvous (Thaler and Ravishankar 1998): each shard ranks all servers by a hash
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

// A shard is a range of one table's rows, and keeps its name when it moves.
struct ShardId {
  std::uint32_t table = 0;
  RowRange range;
  auto operator<=>(const ShardId&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Head first.
using Chains = std::map<ShardId, std::vector<membership::MemberId>>;

// `weights`: of a shard without one, 1. With fewer servers than `replication` chains are as long as
// there are servers.
Chains Place(const std::vector<ShardId>& shards, const std::vector<membership::MemberId>& servers,
             const std::map<ShardId, double>& weights, int replication);

}  // namespace starling::parameter_server
