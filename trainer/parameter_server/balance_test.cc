// SPDX-License-Identifier: Apache-2.0
// Who is too busy; which move is made then stands in shard_placement_load_test.cc.
#include "trainer/parameter_server/balance.h"

#include "gtest/gtest.h"

namespace starling::parameter_server {
namespace {

const membership::MemberId kA{"a", 0}, kB{"b", 0}, kC{"c", 0}, kD{"d", 0};
constexpr double kMuch = 1e7;

BusyShard On(const membership::MemberId& id, double load) { return {{id}, {load}, 1}; }

TEST(BalanceTest, TooBusyIsWhoHasMoreThanSoManyTimesTheMean) {
  const auto uneven = [](double a, double b) {
    return Uneven({On(kA, a), On(kB, b)}, {kA, kB}, {});
  };
  EXPECT_FALSE(uneven(9 * kMuch, 8 * kMuch));
  EXPECT_FALSE(uneven(3 * kMuch, kMuch)) << "exactly as many times";
  EXPECT_TRUE(uneven(3.1 * kMuch, kMuch));
  EXPECT_TRUE(uneven(kMuch, 3.1 * kMuch)) << "whoever it is";
}

TEST(BalanceTest, WhereNobodyDoesMuchNobodyIsTooBusy) {
  const Balance balance;
  EXPECT_TRUE(Uneven({On(kA, balance.least)}, {kA, kB}, balance));
  EXPECT_FALSE(Uneven({On(kA, balance.least - 1)}, {kA, kB}, balance));
  EXPECT_FALSE(Uneven({}, {}, balance)) << "there is no server";
  EXPECT_FALSE(Uneven({On(kA, kMuch)}, {kA}, balance)) << "there is no other";
  Balance by_size;
  by_size.by_load = false;
  EXPECT_FALSE(Uneven({On(kA, kMuch)}, {kA, kB}, by_size));
}

TEST(BalanceTest, OfEquallyBusyServersTheFirstIsRelieved) {
  const std::vector<BusyShard> shards = {On(kB, kMuch), On(kB, kMuch), On(kA, kMuch),
                                         On(kA, kMuch)};
  const auto move = RelieveBusiest(shards, {kA, kB, kC, kD}, {});
  ASSERT_TRUE(move);
  EXPECT_EQ(move->shard, 2u);
  EXPECT_EQ(move->chain, std::vector{kC});
}

TEST(BalanceTest, WhatAServerDoesThatIsLeavingIsNobodysBurden) {
  const std::vector<BusyShard> shards = {{{kD, kB}, {9 * kMuch, kMuch}, 1}, On(kB, kMuch)};
  EXPECT_FALSE(Uneven({{{kD, kA}, {9 * kMuch, kMuch}, 1}, On(kB, kMuch)}, {kA, kB}, {}));
  const auto move = RelieveBusiest(shards, {kA, kB}, {});
  ASSERT_TRUE(move);
  EXPECT_EQ(move->shard, 0u);
  EXPECT_EQ(move->chain, (std::vector{kD, kA})) << "it keeps its place";
}

}  // namespace
}  // namespace starling::parameter_server
