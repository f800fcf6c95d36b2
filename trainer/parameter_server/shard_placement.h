// SPDX-License-Identifier: Apache-2.0
// Where the shards of a job with parameter servers lie: a replica chain of servers for each, by the
// shards' sizes (Place), by loads where a server was too busy (RelieveBusiest), and what the
// machines of one shard and of one client are told of a view. When a view is due, and what makes it
// safe, is ViewPlan's.
//
// Workers are clients: they come and go by any view and are never in a chain. Servers come in two
// views: the first lets them reach the others and fill their caches, the next puts them into the
// chains. A shard of a server that is too busy moves in the same way, one at a time. They leave in
// two as well: out of the chains, then out of the view.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/placement.h"
#include "trainer/parameter_server/balance.h"
#include "trainer/parameter_server/chain_server.h"
#include "trainer/parameter_server/shard_client.h"
#include "trainer/parameter_server/shard_map.h"

namespace starling::parameter_server {

using membership::Liveness;
using membership::ReplicaGroup;
using membership::View;
// What a server says of one shard.
using ShardReport = membership::GroupReport;

// In a view of a job with parameter servers the groups are the shards' replica chains, in the map's
// order.
bool HasClient(const View& view, const Client& client);
// What the machines of one shard, and of one client, are told of it.
ShardView ShardViewOf(const View& view, std::size_t shard);
ClientView ClientViewOf(const View& view, const MemberId& client);
// Ranks of the view's mesh: the servers, then the clients.
std::vector<MemberId> RanksOf(const View& view);

// Thread-compatible.
class ShardPlacement final : public membership::Placement {
 public:
  struct Options {
    std::vector<ShardId> shards;
    std::map<ShardId, double> weights;
    int replication = 1;
    // How long chains wait for the last cache to be filled; then those that are ready move.
    absl::Duration ahead_patience = absl::Seconds(10);
    Balance balance;
  };
  // The shards of which servers are to fetch copies ahead.
  using Ahead = std::map<MemberId, std::vector<std::size_t>>;

  explicit ShardPlacement(Options options) : options_(std::move(options)) {}

  std::size_t groups() const override { return options_.shards.size(); }
  membership::Role role() const override { return membership::Role::kServer; }
  std::string Kept(std::size_t shard) const override;
  std::vector<ReplicaGroup> Repair(const Scene& scene, std::string& waiting) override;
  std::vector<ReplicaGroup> Plan(const Scene& scene) override;

  // By the last Plan(): it means nothing while the newest view does not run.
  const Ahead& ahead() const { return ahead_; }

 private:
  using Chain = membership::Members;

  Chain Serving(const Scene& scene, std::size_t shard) const;
  bool Ready(const Scene& scene, std::size_t shard, const MemberId& server) const;
  std::size_t ChainLength(std::size_t servers) const;
  Chain PlacedByLoad(const Scene& scene, std::size_t shard, const Chain& servers) const;
  std::vector<Chain> Targets(const Scene& scene, const Chain& servers) const;
  void Relieve(const Scene& scene, const Chain& servers);
  Chain ChainFor(const Scene& scene, std::size_t shard, const Chain& target, bool move) const;
  std::vector<ReplicaGroup> GroupsOf(const Scene& scene, const Chain& servers,
                                     std::vector<Chain> chains) const;

  const Options options_;
  Ahead ahead_;
  absl::Time ahead_since_ = absl::InfiniteFuture();
  absl::Time uneven_since_ = absl::InfiniteFuture();
  std::optional<Move> move_;  // under way
};

}  // namespace starling::parameter_server
