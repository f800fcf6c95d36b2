// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/shard_map.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::parameter_server {
namespace {

using membership::MemberId;

std::vector<MemberId> Servers(int count) {
  std::vector<MemberId> servers;
  servers.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) servers.push_back({absl::StrCat("server-", i), 0});
  return servers;
}

std::vector<ShardId> Shards(std::uint64_t count = 42) {
  std::vector<ShardId> shards;
  for (std::uint64_t i = 0; i < count; ++i) shards.push_back({0, {100 * i, 100 * (i + 1)}});
  return shards;
}

std::map<MemberId, double> LoadsOf(const Chains& chains) {
  std::map<MemberId, double> loads;
  for (const auto& [shard, chain] : chains) {
    for (const MemberId& server : chain) loads[server] += 1;
  }
  return loads;
}

// The share of all replicas that is on a server in `to` that did not hold it in `from`.
double MovedShare(const Chains& from, const Chains& to) {
  double moved = 0, total = 0;
  for (const auto& [shard, chain] : to) {
    const std::vector<MemberId>& before = from.at(shard);
    for (const MemberId& server : chain) {
      total += 1;
      moved += std::find(before.begin(), before.end(), server) == before.end() ? 1 : 0;
    }
  }
  return moved / total;
}

TEST(ShardMap, AJoinerTakesAboutItsShareAndALeaverMovesOnlyItsOwn) {
  const auto shards = Shards(205);
  for (const int replication : {1, 2, 3}) {
    for (const int count : {3, 4, 8}) {
      const Chains before = Place(shards, Servers(count), {}, {replication});
      const Chains after = Place(shards, Servers(count + 1), {}, {replication});
      EXPECT_LE(MovedShare(before, after), 1.4 / (count + 1)) << replication << " " << count;
      EXPECT_LE(MovedShare(after, before), 1.4 / (count + 1)) << replication << " " << count;
    }
  }
}

TEST(ShardMap, PlacementByNumberWouldMoveNearlyEverythingSoThatTheCheckCanFail) {
  const auto shards = Shards();
  const auto by_number = [&](std::size_t count) {
    Chains chains;
    const auto servers = Servers(static_cast<int>(count));
    for (std::size_t i = 0; i < shards.size(); ++i) chains[shards[i]] = {servers[i % count]};
    return chains;
  };
  EXPECT_GT(MovedShare(by_number(4), by_number(5)), 0.7);
}

TEST(ShardMap, ChainsAreOfDifferentServersAndNobodyHoldsMuchMoreThanTheMean) {
  const auto shards = Shards();
  for (const int count : {2, 3, 5, 8}) {
    const Chains chains = Place(shards, Servers(count), {}, {2});
    for (const auto& [shard, chain] : chains) {
      ASSERT_EQ(chain.size(), 2u);
      EXPECT_NE(chain[0], chain[1]);
    }
    const double mean = 2.0 * static_cast<double>(shards.size()) / count;
    for (const auto& [server, load] : LoadsOf(chains)) EXPECT_LE(load, 1.15 * mean + 1);
  }
}

TEST(ShardMap, FewerServersThanReplicasMakeShorterChains) {
  const Chains chains = Place(Shards(), Servers(1), {}, {3});
  for (const auto& [shard, chain] : chains) EXPECT_EQ(chain.size(), 1u);
  EXPECT_TRUE(Place(Shards(), {}, {}, {3}).empty());
}

TEST(ShardMap, ALoadThatNoServerCanCarryBesideOthersIsCarriedAlone) {
  const auto shards = Shards();
  std::map<ShardId, double> loads;
  for (const ShardId& shard : shards) loads[shard] = 1;
  loads[shards[3]] = 20;
  std::map<MemberId, double> carried;
  for (const auto& [shard, chain] : Place(shards, Servers(4), loads, {1})) {
    carried[chain[0]] += loads[shard];
  }
  double most = 0, total = 0;
  for (const auto& [server, load] : carried) most = std::max(most, load);
  for (const auto& [shard, load] : loads) total += load;
  EXPECT_LE(most, 1.15 * total / 4 + 20);
}

std::string Written(const Chains& chains) {
  std::string text;
  for (const auto& [shard, chain] : chains) {
    absl::StrAppend(&text, shard.table, ":", shard.range.begin);
    for (const MemberId& server : chain) absl::StrAppend(&text, " ", server.pod_uid.substr(7));
    absl::StrAppend(&text, "\n");
  }
  return text;
}

// A chain that lay elsewhere after an upgrade would have to be copied: these never change.
TEST(ShardMap, PlacementsAreTheSameInEveryVersion) {
  std::vector<ShardId> shards = Shards(12);
  for (ShardId& shard : shards) shard.table = shard.range.begin % 300 == 0 ? 1 : 0;
  const std::string placed = Written(Place(shards, Servers(5), {}, 3));
  EXPECT_EQ(placed,
            "0:100 1 2 4\n0:200 1 3 4\n0:400 0 1 2\n0:500 4 2 1\n0:700 1 4 0\n0:800 4 3 2\n"
            "0:1000 4 3 1\n0:1100 0 4 2\n1:0 2 1 0\n1:300 2 1 0\n1:600 3 0 4\n1:900 2 0 3\n");
  std::reverse(shards.begin(), shards.end());
  EXPECT_EQ(Written(Place(shards, Servers(5), {}, 3)), placed)
      << "in whatever order they are named";
}

TEST(ShardMap, AShardWithoutAWeightWeighsOne) {
  const auto shards = Shards();
  std::map<ShardId, double> some, all;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    all[shards[i]] = i % 3 == 0 ? 4 : 1;
    if (i % 3 == 0) some[shards[i]] = 4;
  }
  EXPECT_EQ(Place(shards, Servers(4), some, 1), Place(shards, Servers(4), all, 1));
}

// Each time the first of two servers is the favourite of more shards than it may have.
TEST(ShardMap, AServerIsFullAtExactly15PercentAboveTheMean) {
  for (const auto& [count, most] : {std::pair<std::uint64_t, double>{40, 23}, {12, 6}}) {
    double highest = 0;
    for (int i = 0; i < 20; ++i) {
      std::vector<MemberId> servers = Servers(2);
      servers[0].pod_uid += absl::StrCat("-", i);
      for (const auto& [server, load] : LoadsOf(Place(Shards(count), servers, {}, 1))) {
        highest = std::max(highest, load);
      }
    }
    EXPECT_EQ(highest, most) << count << " shards";
  }
}

TEST(ShardMap, NobodyIsTwiceInAChainHoweverUnevenTheWeights) {
  const auto shards = Shards(9);
  for (int seed = 0; seed < 20; ++seed) {
    std::map<ShardId, double> weights;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      weights[shards[i]] = 1 << HashOfKey(i * 20 + static_cast<std::uint64_t>(seed)) % 6;
    }
    for (const auto& [shard, chain] : Place(shards, Servers(4), weights, 2)) {
      ASSERT_EQ(chain.size(), 2u);
      EXPECT_NE(chain[0], chain[1]) << seed;
    }
  }
}

}  // namespace
}  // namespace starling::parameter_server
