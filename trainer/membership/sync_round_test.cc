// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/sync_round.h"

#include "gtest/gtest.h"

namespace starling::membership {
namespace {

const MemberId kA{"a", 0};
const MemberId kB{"b", 0};
const MemberId kC{"c", 0};

ReplicaGroup GroupOf(ViewNumber epoch, const std::vector<MemberId>& members) {
  ReplicaGroup group;
  group.epoch = epoch;
  group.members = members;
  return group;
}

// What a member holds: a state, a checkpoint, or nothing.
struct Holding {
  std::optional<StateId> state = {};
  std::optional<StateId> checkpoint = {};
};

std::map<MemberId, SyncId> Said(const std::map<MemberId, Holding>& holdings) {
  std::map<MemberId, SyncId> said;
  for (const auto& [id, holding] : holdings) {
    SyncId& sync_id = said[id];
    sync_id.member = id;
    sync_id.state = holding.state;
    if (holding.checkpoint) sync_id.checkpoint = CheckpointOffer{*holding.checkpoint, {}};
  }
  return said;
}

constexpr ViewNumber V(std::uint64_t incarnation, std::uint64_t epoch) {
  return incarnation << 32 | epoch;
}

TEST(DecideSync, NobodyHasAnythingSoEveryoneStartsFresh) {
  const SyncDecision decision =
      DecideSync(GroupOf(V(1, 1), {kA, kB}), Said({{kA, {}}, {kB, {}}}), Rules{});
  EXPECT_FALSE(decision.base);
  EXPECT_EQ(decision.holders, (std::vector<MemberId>{kA, kB}));
  EXPECT_TRUE(decision.copiers.empty());
}

TEST(DecideSync, TheHighestStateIsTheBaseAndItsHoldersServeTheRest) {
  const SyncDecision decision = DecideSync(
      GroupOf(V(1, 3), {kC, kA, kB}),
      Said({{kA, {StateId{V(1, 2), 7}}}, {kB, {StateId{V(1, 2), 6}}}, {kC, {}}}), Rules{});
  EXPECT_EQ(decision.base, (StateId{V(1, 2), 7}));
  EXPECT_EQ(decision.holders, (std::vector<MemberId>{kA}));
  EXPECT_EQ(decision.copiers, (std::vector<MemberId>{kC, kB}));
}

TEST(DecideSync, AStateOfALaterViewBeatsMoreStepsOfAnEarlierOne) {
  const ReplicaGroup group = GroupOf(V(1, 4), {kA, kB});
  const auto said = Said({{kA, {StateId{V(1, 2), 9}}}, {kB, {StateId{V(1, 3), 8}}}});
  EXPECT_EQ(DecideSync(group, said, Rules{}).base, (StateId{V(1, 3), 8}));

  Rules without;
  without.view_in_state_id = false;
  EXPECT_EQ(DecideSync(group, said, without).base, (StateId{V(1, 2), 9}));
}

TEST(DecideSync, TheNewestCheckpointIsTheBaseWhereNobodyHasAState) {
  const SyncDecision decision = DecideSync(
      GroupOf(V(2, 1), {kA, kB, kC}),
      Said({{kA, {{}, StateId{V(1, 2), 9}}}, {kB, {}}, {kC, {{}, StateId{V(1, 2), 5}}}}), Rules{});
  EXPECT_EQ(decision.base, (StateId{V(1, 2), 9}));
  EXPECT_TRUE(decision.from_checkpoint);
  EXPECT_EQ(decision.holders, (std::vector<MemberId>{kA}));
  EXPECT_EQ(decision.copiers, (std::vector<MemberId>{kB, kC}));
}

TEST(DecideSync, ACheckpointOfAHigherIncarnationProvesThatThisSideIsFenced) {
  const ReplicaGroup group = GroupOf(V(1, 5), {kA, kB});
  const auto said = Said({{kA, {StateId{V(1, 4), 2}}}, {kB, {{}, StateId{V(2, 1), 0}}}});
  EXPECT_EQ(DecideSync(group, said, Rules{}).fenced_by, 2U);

  Rules without;
  without.refuse_higher_checkpoint = false;
  EXPECT_EQ(DecideSync(group, said, without).base, (StateId{V(2, 1), 0}));
}

TEST(DecideSync, ACheckpointOfTheSameIncarnationFencesNobody) {
  const auto said = Said({{kA, {{}, StateId{V(2, 1), 3}}}});
  EXPECT_EQ(DecideSync(GroupOf(V(2, 2), {kA}), said, Rules{}).fenced_by, 0U);
}

TEST(DecideSync, WhereNobodyMayStartThereIsNoBase) {
  ReplicaGroup group = GroupOf(V(1, 5), {kA, kB});
  SyncDecision decision = DecideSync(
      group, Said({{kA, {StateId{V(1, 4), 2}}}, {kB, {{}, StateId{V(2, 1), 0}}}}), Rules{});
  EXPECT_NE(decision.fenced_by, 0U);
  EXPECT_FALSE(decision.base);
  EXPECT_TRUE(decision.holders.empty());
  group.since = {{V(1, 4), {kC}}};
  decision = DecideSync(group, Said({{kA, {StateId{V(1, 3), 2}}}, {kB, {}}}), Rules{});
  EXPECT_NE(decision.missing_witness, 0U);
  EXPECT_FALSE(decision.base);
  EXPECT_TRUE(decision.copiers.empty());
}

TEST(DecideSync, AStateGoesBeforeACheckpointOfTheSame) {
  Rules by_step;
  by_step.view_in_state_id = false;
  for (const Rules& rules : {Rules{}, by_step}) {
    const SyncDecision decision =
        DecideSync(GroupOf(V(1, 3), {kA, kB}),
                   Said({{kA, {StateId{V(1, 2), 9}}}, {kB, {{}, StateId{V(1, 2), 9}}}}), rules);
    EXPECT_FALSE(decision.from_checkpoint);
    EXPECT_EQ(decision.holders, (std::vector<MemberId>{kA}));
  }
}

TEST(DecideSync, WhereViewsDoNotCountEqualStepsAreTheSameState) {
  Rules by_step;
  by_step.view_in_state_id = false;
  const SyncDecision decision = DecideSync(
      GroupOf(V(1, 4), {kA, kB, kC}),
      Said({{kA, {StateId{V(1, 2), 9}}}, {kB, {StateId{V(1, 3), 9}}}, {kC, {StateId{V(1, 3), 8}}}}),
      by_step);
  EXPECT_EQ(decision.holders, (std::vector<MemberId>{kA, kB}));
  EXPECT_EQ(decision.copiers, (std::vector<MemberId>{kC}));
}

TEST(MissingWitness, TheVeryFirstViewNeedsOneToo) {
  ReplicaGroup group = GroupOf(2, {kA});
  group.since = {{1, {kB}}};
  EXPECT_EQ(MissingWitness(group, Said({{kA, {}}}), Rules{}), 1U);
}

TEST(MissingWitness, AViewThatNobodyHereWasInMayHaveSettledSteps) {
  ReplicaGroup group = GroupOf(V(1, 3), {kA});
  group.since = {{V(1, 1), {kA, kB}}, {V(1, 2), {kB}}};
  const auto said = Said({{kA, {StateId{V(1, 1), 4}}}});
  EXPECT_EQ(MissingWitness(group, said, Rules{}), V(1, 2));
  EXPECT_EQ(DecideSync(group, said, Rules{}).missing_witness, V(1, 2));

  Rules without;
  without.witness = false;
  EXPECT_EQ(MissingWitness(group, said, without), 0U);
}

TEST(MissingWitness, OneMemberThatHasNotSyncedItIsEnough) {
  ReplicaGroup group = GroupOf(V(1, 3), {kA});
  group.since = {{V(1, 1), {kA, kB}}, {V(1, 2), {kA, kB, kC}}};
  EXPECT_EQ(MissingWitness(group, Said({{kA, {StateId{V(1, 1), 4}}}}), Rules{}), 0U);
}

TEST(MissingWitness, SoIsOneThatHasSyncedALaterView) {
  ReplicaGroup group = GroupOf(V(1, 4), {kC});
  group.since = {{V(1, 1), {kA}}, {V(1, 2), {kB}}, {V(1, 3), {kC}}};
  EXPECT_EQ(MissingWitness(group, Said({{kC, {StateId{V(1, 3), 4}}}}), Rules{}), 0U);
}

TEST(MissingWitness, SoIsAWaiver) {
  ReplicaGroup group = GroupOf(V(1, 3), {kA});
  group.since = {{V(1, 2), {kB}}};
  group.waived = {V(1, 2)};
  EXPECT_EQ(MissingWitness(group, Said({{kA, {StateId{V(1, 1), 4}}}}), Rules{}), 0U);
}

TEST(MissingWitness, ACheckpointIsNone) {
  ReplicaGroup group = GroupOf(V(1, 3), {kA});
  group.since = {{V(1, 2), {kB}}};
  group.restore = true;
  auto said = Said({{kA, {{}, StateId{V(1, 2), 5}}}});
  EXPECT_EQ(MissingWitness(group, said, Rules{}), V(1, 2));

  Rules without;
  without.checkpoint_is_no_witness = false;
  EXPECT_EQ(MissingWitness(group, said, without), 0U);
  said[kA].checkpoint.reset();
  EXPECT_EQ(MissingWitness(group, said, without), V(1, 2)) << "nothing is offered any more";
}

}  // namespace
}  // namespace starling::membership
