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

std::vector<SlotId> Slots(std::uint64_t count = 42) {
  std::vector<SlotId> slots;
  for (std::uint64_t i = 0; i < count; ++i) slots.push_back({0, {100 * i, 100 * (i + 1)}});
  return slots;
}

std::map<MemberId, double> LoadsOf(const Chains& chains) {
  std::map<MemberId, double> loads;
  for (const auto& [slot, chain] : chains) {
    for (const MemberId& server : chain) loads[server] += 1;
  }
  return loads;
}

// The share of all replicas that is on a server in `to` that did not hold it in `from`.
double MovedShare(const Chains& from, const Chains& to) {
  double moved = 0, total = 0;
  for (const auto& [slot, chain] : to) {
    const std::vector<MemberId>& before = from.at(slot);
    for (const MemberId& server : chain) {
      total += 1;
      moved += std::find(before.begin(), before.end(), server) == before.end() ? 1 : 0;
    }
  }
  return moved / total;
}

TEST(ShardMap, AJoinerTakesAboutItsShareAndALeaverMovesOnlyItsOwn) {
  const auto slots = Slots(205);
  for (const int replication : {1, 2, 3}) {
    for (const int count : {3, 4, 8}) {
      const Chains before = Place(slots, Servers(count), {}, {replication});
      const Chains after = Place(slots, Servers(count + 1), {}, {replication});
      EXPECT_LE(MovedShare(before, after), 1.4 / (count + 1)) << replication << " " << count;
      EXPECT_LE(MovedShare(after, before), 1.4 / (count + 1)) << replication << " " << count;
    }
  }
}

TEST(ShardMap, PlacementByNumberWouldMoveNearlyEverythingSoThatTheCheckCanFail) {
  const auto slots = Slots();
  const auto by_number = [&](std::size_t count) {
    Chains chains;
    const auto servers = Servers(static_cast<int>(count));
    for (std::size_t i = 0; i < slots.size(); ++i) chains[slots[i]] = {servers[i % count]};
    return chains;
  };
  EXPECT_GT(MovedShare(by_number(4), by_number(5)), 0.7);
}

TEST(ShardMap, ChainsAreOfDifferentServersAndNobodyHoldsMuchMoreThanTheMean) {
  const auto slots = Slots();
  for (const int count : {2, 3, 5, 8}) {
    const Chains chains = Place(slots, Servers(count), {}, {2});
    for (const auto& [slot, chain] : chains) {
      ASSERT_EQ(chain.size(), 2u);
      EXPECT_NE(chain[0], chain[1]);
    }
    const double mean = 2.0 * static_cast<double>(slots.size()) / count;
    for (const auto& [server, load] : LoadsOf(chains)) EXPECT_LE(load, 1.15 * mean + 1);
  }
}

TEST(ShardMap, FewerServersThanReplicasMakeShorterChains) {
  const Chains chains = Place(Slots(), Servers(1), {}, {3});
  for (const auto& [slot, chain] : chains) EXPECT_EQ(chain.size(), 1u);
  EXPECT_TRUE(Place(Slots(), {}, {}, {3}).empty());
}

TEST(ShardMap, ALoadThatNoServerCanCarryBesideOthersIsCarriedAlone) {
  const auto slots = Slots();
  std::map<SlotId, double> loads;
  for (const SlotId& slot : slots) loads[slot] = 1;
  loads[slots[3]] = 20;
  std::map<MemberId, double> carried;
  for (const auto& [slot, chain] : Place(slots, Servers(4), loads, {1})) {
    carried[chain[0]] += loads[slot];
  }
  double most = 0, total = 0;
  for (const auto& [server, load] : carried) most = std::max(most, load);
  for (const auto& [slot, load] : loads) total += load;
  EXPECT_LE(most, 1.15 * total / 4 + 20);
}

}  // namespace
}  // namespace starling::parameter_server
