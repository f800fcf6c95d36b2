// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/types.h"

#include "gtest/gtest.h"

namespace starling::membership {
namespace {

const MemberId kA{"a", 0}, kB{"b", 0}, kS{"s", 0};

TEST(View, RanksAreByPlaceAndMinusOneForWhoIsNotThere) {
  View view = ViewOfPeers(3, {{kA, "", 3, ""}, {kB, "", 3, ""}});
  EXPECT_EQ(view.RankOf(kB), 1);
  EXPECT_EQ(view.RankOf(kS), -1);
  EXPECT_EQ(view.groups[0].RankOf(kB), 1);
  EXPECT_EQ(view.groups[0].RankOf(kS), -1);
  EXPECT_EQ(view.groups[0].epoch, 3U);
  EXPECT_EQ(view.GroupOf(kA), &view.groups[0]);
  EXPECT_EQ(view.GroupOf(kS), nullptr);
}

TEST(View, ServersStandBeforeWorkers) {
  View view = ViewOfPeers(3, {{kA, "", 3, ""}});
  EXPECT_TRUE(view.servers().empty());
  view.members.insert(view.members.begin(), {kS, "", 3, "", "", Role::kServer});
  ASSERT_EQ(view.servers().size(), 1U);
  EXPECT_EQ(view.servers()[0].id, kS);
  ASSERT_EQ(view.workers().size(), 1U);
  EXPECT_EQ(view.workers()[0].id, kA);
}

TEST(View, RestoresTheRoleOfWhoeverIsFirstInAGroupThatDoes) {
  View view = ViewOfPeers(3, {{kA, "", 3, ""}, {kB, "", 3, ""}});
  EXPECT_FALSE(view.Restores(Role::kWorker));
  view.groups[0].restore = true;
  EXPECT_TRUE(view.Restores(Role::kWorker));
  EXPECT_FALSE(view.Restores(Role::kServer));
  view.members[0].role = Role::kServer;
  EXPECT_TRUE(view.Restores(Role::kServer));
}

// Views come from the network.
TEST(View, AGroupOfNobodyOrOfStrangersRestoresNothing) {
  View view = ViewOfPeers(3, {{kA, "", 3, ""}});
  view.groups[0].restore = true;
  view.groups[0].members = {kS};
  EXPECT_FALSE(view.Restores(Role::kWorker));
  view.groups[0].members = {};
  EXPECT_FALSE(view.Restores(Role::kWorker));
}

}  // namespace
}  // namespace starling::membership
