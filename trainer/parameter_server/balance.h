// SPDX-License-Identifier: Apache-2.0
// Which shard a server that is too busy gives up, and to whom. A pure function of the chains, of
// what the servers say each shard costs them, and of the shards' sizes.
//
// A range of keys is many shards, so a hot range is split off by moving some of its shards to where
// there is room. One that is hot by itself can only be had alone: what lies beside it moves away.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/types.h"

namespace starling::parameter_server {

struct Balance {
  bool by_load = true;  // off: sizes alone count
  // A server with more than so many times the mean load is too busy ...
  double hot = 1.5;
  // ... once it has been for so long, counted anew after each move: measured loads lag behind.
  absl::Duration patience = absl::Seconds(5);
  // A move takes at least this share off the busiest server's load.
  double gain = 0.1;
  // Nobody gets more than so much above the mean size by a move.
  double size_slack = 0.5;
  double least = 1e6;  // bytes a second: a job in which nobody does more has no hot shards
};

// A shard as its chain's servers have it, head first.
struct BusyShard {
  std::vector<membership::MemberId> chain;
  std::vector<double> loads;  // of each of them, by this shard
  double weight = 1;          // its size
};

struct Move {
  std::size_t shard = 0;
  std::vector<membership::MemberId> chain;  // instead of the present one
};

// Whether one of `servers` is too busy.
bool Uneven(const std::vector<BusyShard>& shards, const std::vector<membership::MemberId>& servers,
            const Balance& balance);

// The move that evens out most, of a shard of the busiest server to another one; nothing if nobody
// is too busy or no move helps enough. A function of its arguments: ties are broken by order.
std::optional<Move> RelieveBusiest(const std::vector<BusyShard>& shards,
                                   const std::vector<membership::MemberId>& servers,
                                   const Balance& balance);

}  // namespace starling::parameter_server
