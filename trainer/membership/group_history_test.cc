// SPDX-License-Identifier: Apache-2.0
// The rules of one group one at a time; trainer/simulation plays them together, under faults.
#include "trainer/membership/group_history.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const MemberId kA{"a", 0};
const MemberId kB{"b", 0};
const MemberId kC{"c", 0};

ViewNumber V(std::uint64_t epoch) { return MakeViewNumber(1, epoch); }

// A group whose processes end, report and hold states as the test says.
class GroupHistoryTest : public testing::Test {
 protected:
  void Published(ViewNumber epoch, const Members& members) {
    ReplicaGroup group;
    group.epoch = epoch;
    group.members = members;
    history_.Learn(group);
  }
  void Synced(const MemberId& id, ViewNumber epoch) {
    states_[id] = {epoch, 1};
    history_.LearnState(id, states_.at(id));
  }
  void Prune() {
    history_.Prune([this](const MemberId& id) { return ended_.contains(id); });
  }
  struct FormedGroup {
    ReplicaGroup group;
    ViewNumber missing_witness = 0;
  };
  FormedGroup Form(const Members& members, bool witnesses = false, bool newest_unknown = false) {
    GroupHistory::Evidence evidence;
    evidence.ended = [this](const MemberId& id) { return ended_.contains(id); };
    evidence.state = [this](const MemberId& id) -> std::optional<StateId> {
      const auto state = states_.find(id);
      return state == states_.end() ? std::nullopt : std::optional(state->second);
    };
    if (witnesses) {
      evidence.witness = [this](const MemberId& id) { return reporting_.contains(id); };
    }
    evidence.newest_unknown = newest_unknown;
    FormedGroup formed;
    formed.group.members = members;
    formed.missing_witness = history_.Form(formed.group, evidence);
    return formed;
  }
  std::vector<ViewNumber> Epochs() const {
    std::vector<ViewNumber> epochs;
    for (const auto& [epoch, members] : history_.past()) epochs.push_back(epoch);
    return epochs;
  }

  GroupHistory history_;
  std::set<MemberId> ended_;
  std::set<MemberId> reporting_;
  std::map<MemberId, StateId> states_;
};

TEST_F(GroupHistoryTest, AViewIsForgottenOnceALaterOneIsSyncedByAll) {
  Published(V(1), {kA, kB});
  Published(V(2), {kA, kB});
  Synced(kA, V(2));
  Prune();
  EXPECT_THAT(Epochs(), ElementsAre(V(1), V(2))) << "b may hold what a has not";
  Synced(kB, V(2));
  Prune();
  EXPECT_THAT(Epochs(), ElementsAre(V(2))) << "the synced one itself is kept";
}

TEST_F(GroupHistoryTest, AViewStaysWhileSomebodyOutsideTheSyncedOneMayHoldIt) {
  Published(V(1), {kA, kC});
  Published(V(2), {kA});
  Synced(kA, V(2));
  Prune();
  EXPECT_THAT(Epochs(), ElementsAre(V(1), V(2)));
  ended_ = {kC};
  Prune();
  EXPECT_THAT(Epochs(), ElementsAre(V(2)));
}

TEST_F(GroupHistoryTest, WithoutTheRuleAViewIsForgottenThatMayHoldMore) {
  Rules without;
  without.prune_synced = false;
  history_ = GroupHistory(without);
  Published(V(1), {kA, kB});
  Published(V(2), {kA});
  Prune();
  EXPECT_THAT(Epochs(), ElementsAre(V(2)));
}

TEST_F(GroupHistoryTest, SyncedByAllMeansThatEveryMemberHasThatEpochOrALaterOne) {
  ReplicaGroup group;
  group.epoch = V(3);
  group.members = {kA, kB};
  EXPECT_FALSE(history_.SyncedByAll(group));
  Synced(kA, V(4));
  Synced(kB, V(2));
  EXPECT_FALSE(history_.SyncedByAll(group));
  Synced(kB, V(3));
  EXPECT_TRUE(history_.SyncedByAll(group));
  Synced(kB, V(1));  // a late report takes nothing back
  EXPECT_TRUE(history_.SyncedByAll(group));
}

TEST_F(GroupHistoryTest, WhatAViewListsOfThoseBeforeItIsLearnedWithIt) {
  ReplicaGroup group;
  group.epoch = V(3);
  group.members = {kC};
  group.since = {{V(1), {kA}}, {V(2), {kB}}};
  history_.Learn(group);
  const FormedGroup formed = Form({kC});
  EXPECT_EQ(formed.group.since, (std::vector<PastView>{{V(1), {kA}}, {V(2), {kB}}, {V(3), {kC}}}));
}

TEST_F(GroupHistoryTest, TheFirstGroupRestoresAndKeepsItsOrder) {
  const FormedGroup formed = Form({kB, kA});
  EXPECT_EQ(formed.missing_witness, 0U);
  EXPECT_THAT(formed.group.members, ElementsAre(kB, kA));
  EXPECT_THAT(formed.group.since, IsEmpty());
  EXPECT_TRUE(formed.group.restore);
}

TEST_F(GroupHistoryTest, WhoHoldsAStateNeedsNoRestore) {
  Published(V(1), {kA, kB});
  Synced(kA, V(1));
  EXPECT_FALSE(Form({kA}).group.restore);
  EXPECT_TRUE(Form({kA}, false, /*newest_unknown=*/true).group.restore);
}

TEST_F(GroupHistoryTest, AMissingWitnessIsNamedUntilItsViewIsWaived) {
  Published(V(1), {kA, kB});
  Published(V(2), {kB});
  Synced(kA, V(1));
  EXPECT_EQ(Form({kA}).missing_witness, V(2));
  EXPECT_THAT(MissingWitnessText("the last steps", "workers", V(2)), HasSubstr("(view 1-2)"));
  ended_ = {kB};
  const FormedGroup waived = Form({kA});
  EXPECT_EQ(waived.missing_witness, 0U);
  EXPECT_THAT(waived.group.waived, ElementsAre(V(2)));
  EXPECT_TRUE(waived.group.restore) << "it was above what anyone has synced";
}

TEST_F(GroupHistoryTest, AWaivedViewBelowWhatIsSyncedRestoresNothing) {
  Published(V(1), {kB});
  Published(V(2), {kA});
  Synced(kA, V(2));
  ended_ = {kB};
  const FormedGroup formed = Form({kA});
  EXPECT_THAT(formed.group.waived, ElementsAre(V(1)));
  EXPECT_FALSE(formed.group.restore);
}

TEST_F(GroupHistoryTest, NorDoesAWaivedViewOfWhichSomebodyHoldsAState) {
  Published(V(1), {kB});
  Synced(kA, V(1));
  ended_ = {kB};
  const FormedGroup formed = Form({kA});
  EXPECT_THAT(formed.group.waived, ElementsAre(V(1)));
  EXPECT_FALSE(formed.group.restore);
}

TEST_F(GroupHistoryTest, WithoutTheRuleAViewIsWaivedWhoseMembersLive) {
  Rules without;
  without.waive_ended = false;
  history_ = GroupHistory(without);
  Published(V(1), {kA, kB});
  Published(V(2), {kB});
  Synced(kA, V(1));
  EXPECT_EQ(Form({kA}).missing_witness, 0U);
}

TEST_F(GroupHistoryTest, AWitnessThatLivesComesFirst) {
  Published(V(1), {kA, kB});
  Published(V(2), {kB, kC});
  Synced(kA, V(1));
  EXPECT_EQ(Form({kA}, /*witnesses=*/true).missing_witness, V(2)) << "nobody answers";
  reporting_ = {kC};
  const FormedGroup formed = Form({kA}, /*witnesses=*/true);
  EXPECT_EQ(formed.missing_witness, 0U);
  EXPECT_THAT(formed.group.members, ElementsAre(kC, kA));
  EXPECT_EQ(Form({kA}).missing_witness, V(2)) << "unless nobody may be added";
}

TEST_F(GroupHistoryTest, WhoWasGivenUpReturnsOnceALivingMemberHasSyncedTheNewestView) {
  const auto ended = [this](const MemberId& id) { return ended_.contains(id); };
  ended_ = {kC};
  Published(V(1), {kA, kC});
  Synced(kA, V(1));
  EXPECT_TRUE(history_.MayReturn(V(1), ended));
  EXPECT_FALSE(history_.MayReturn(V(2), ended)) << "its state would be the later one";
  Published(V(3), {kA, kB});
  EXPECT_FALSE(history_.MayReturn(V(2), ended)) << "nobody has synced it";
  Synced(kA, V(3));
  EXPECT_TRUE(history_.MayReturn(V(2), ended));
  ended_.insert(kA);
  EXPECT_FALSE(history_.MayReturn(V(2), ended)) << "b may hold what is left";
  ended_.insert(kB);
  EXPECT_TRUE(history_.MayReturn(V(4), ended)) << "there is nobody whom it could harm";
}

}  // namespace
}  // namespace starling::membership
