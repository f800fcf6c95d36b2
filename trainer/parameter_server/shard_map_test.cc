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

TableSpec Table(TableKind kind, std::uint64_t rows, std::uint32_t width) {
  TableSpec table;
  table.kind = kind;
  table.rows = rows;
  table.width = width;
  return table;
}

std::vector<SlotId> Slots() {
  return Cut({Table(TableKind::kDense, 100'000, 256), Table(TableKind::kSparse, 0, 8)}, {});
}

std::map<MemberId, double> LoadsOf(const Chains& chains) {
  std::map<MemberId, double> loads;
  for (const auto& [slot, chain] : chains) {
    for (const MemberId& server : chain) loads[server] += 1;
  }
  return loads;
}

TEST(ShardMap, SlotsCoverEveryRowOnceAndBigArraysAreCutWhileSmallOnesAreNot) {
  const auto slots =
      Cut({Table(TableKind::kArray, 999'999, 1), Table(TableKind::kArray, 1'000'001, 1),
           Table(TableKind::kSparse, 0, 4), Table(TableKind::kDense, 7, 1'000'000)},
          {});
  std::map<std::uint32_t, std::uint64_t> next, parts;
  for (const SlotId& slot : slots) {
    EXPECT_EQ(slot.range.begin, next[slot.table]);
    EXPECT_LT(slot.range.begin, slot.range.end);
    next[slot.table] = slot.range.end;
    ++parts[slot.table];
  }
  EXPECT_THAT(parts, testing::ElementsAre(testing::Pair(0, 1), testing::Pair(1, 2),
                                          testing::Pair(2, 16), testing::Pair(3, 7)));
  EXPECT_EQ(next[0], 999'999u);
  EXPECT_EQ(next[2], kHashEnd);
  EXPECT_EQ(Find(slots, 1, 700'000)->range.end, 1'000'001u);
  EXPECT_EQ(Find(slots, 1, 1'000'001), nullptr);
}

TEST(ShardMap, AJoinerTakesAboutItsShareAndALeaverMovesOnlyItsOwn) {
  const auto slots = Cut({Table(TableKind::kDense, 100'000, 256)}, {500'000, 16});
  for (const int replication : {1, 2, 3}) {
    for (const int count : {3, 4, 8}) {
      const Chains before = Place(slots, Servers(count), {}, {replication});
      const Chains after = Place(slots, Servers(count + 1), {}, {replication});
      EXPECT_LE(MovedShare(before, after, {}), 1.4 / (count + 1)) << replication << " " << count;
      EXPECT_LE(MovedShare(after, before, {}), 1.4 / (count + 1)) << replication << " " << count;
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
  EXPECT_GT(MovedShare(by_number(4), by_number(5), {}), 0.7);
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

TEST(ShardMap, AHotSlotIsCutInTwoAndTheOthersStayWhereTheyAre) {
  const auto slots = Slots();
  std::map<SlotId, double> loads;
  for (const SlotId& slot : slots) loads[slot] = 1;
  loads[slots[3]] = 20;
  const auto split = SplitHot(slots, loads, 4);
  EXPECT_EQ(split.size(), slots.size() + 1);
  EXPECT_EQ(split[3].range.end, split[4].range.begin);
  EXPECT_EQ(split[4].range.end, slots[3].range.end);
  EXPECT_EQ(SplitHot(slots, {}, 4), slots);
  // A load that no server can carry beside others is carried alone.
  const Chains chains = Place(slots, Servers(4), loads, {1});
  std::map<MemberId, double> carried;
  for (const auto& [slot, chain] : chains) carried[chain[0]] += loads[slot];
  double most = 0;
  for (const auto& [server, load] : carried) most = std::max(most, load);
  double total = 0;
  for (const auto& [slot, load] : loads) total += load;
  EXPECT_LE(most, 1.15 * total / 4 + 20);
}

}  // namespace
}  // namespace starling::parameter_server
