// SPDX-License-Identifier: Apache-2.0
// A coordinator that takes over from another: whom it waits for, and what it tells of the silent.
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/peer_fleet.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(PeerCoordinatorTakeover, ASuccessorThatHearsEveryoneAdoptsTheRunningView) {
  Fleet fleet = Running(2);
  fleet.NewCoordinator();
  fleet.Connect(0);
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("w1"));
  fleet.Connect(1);
  EXPECT_THAT(fleet.Look().waiting, "");
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_EQ(fleet.members_.at(0).view()->number, MakeViewNumber(1, 1));
  fleet.Step({0, 1});
  EXPECT_EQ(fleet.members_.at(0).state(), (StateId{MakeViewNumber(1, 1), 2}));
}

TEST(PeerCoordinatorTakeover, ASuccessorPublishesNothingBeforeTheRosterHasReported) {
  for (const bool wait : {true, false}) {
    Rules rules;
    rules.roster_wait = wait;
    Fleet fleet(2, rules);
    fleet.Start(0);
    fleet.Start(1);
    fleet.Step({0, 1});
    fleet.Advance(absl::Seconds(1.5), /*mute=*/{1});  // 0 goes on without 1, and settles steps
    fleet.Step({0});
    fleet.Step({0});
    fleet.NewCoordinator();
    fleet.Connect(1);
    fleet.Advance(absl::Seconds(1.5));
    EXPECT_EQ(fleet.Look().newest_view > MakeViewNumber(2, 0), !wait);
  }
}

TEST(PeerCoordinatorTakeover,
     AfterTheTakeoverTimeoutTheSilentCountAsEndedAndAnIncidentSaysWhatThatRisks) {
  Fleet fleet = Running(3);
  fleet.members_.erase(2);
  fleet.NewCoordinator();
  fleet.Connect(0);
  fleet.Connect(1);
  fleet.Advance(absl::Seconds(1.5));
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  fleet.Advance(absl::Seconds(1));
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1));
  EXPECT_EQ(fleet.members_.at(0).view()->number, MakeViewNumber(2, 1));
  EXPECT_EQ(fleet.Look().incidents[0].reason, "StepsAtRisk");
}

TEST(PeerCoordinatorTakeover, WhoHearsOfAHigherIncarnationPublishesNoMore) {
  Fleet fleet = Running(2);
  Directive newer;
  newer.incarnation = 7;
  fleet.members_.at(0).OnDirective(newer);
  fleet.Report(0);
  EXPECT_TRUE(fleet.Look().superseded);
  fleet.Kill(1);
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_TRUE(fleet.coordinator_->PodsToDial().empty());
}

// The coordinator dies while a third worker is just starting.
Fleet WithAStarterAndASuccessor() {
  Fleet fleet = Running(2);
  fleet.AddPod();
  fleet.desired_.workers = 3;
  fleet.Want();
  fleet.NewCoordinator();
  fleet.Connect(0);
  fleet.Connect(1);
  return fleet;
}

TEST(PeerCoordinatorTakeover, AWorkerThatIsJustStartingIsNotWaitedForAndPutsNoStepsAtRisk) {
  Fleet fleet = WithAStarterAndASuccessor();
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("w2"));
  fleet.Advance(absl::Seconds(2.5));
  EXPECT_THAT(fleet.Look().waiting, "");
  EXPECT_THAT(fleet.coordinator_->assumed_terminated(), ElementsAre("uid2"));
  EXPECT_THAT(fleet.Look().incidents, IsEmpty());

  fleet.Start(2);
  fleet.Step({0, 1});
  fleet.Advance(absl::Minutes(1));
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  EXPECT_THAT(fleet.Look().incidents, IsEmpty());
}

TEST(PeerCoordinatorTakeover, AnAddressThatIsSilentForLongIsToldOfAsARiskAndOneThatEndsIsNot) {
  for (const bool ends : {false, true}) {
    Fleet fleet = WithAStarterAndASuccessor();
    fleet.Advance(absl::Seconds(20));
    EXPECT_THAT(fleet.Look().incidents, IsEmpty());
    if (ends) fleet.pods_[2].state = PodState::kTerminated;
    fleet.Want();
    fleet.Advance(absl::Seconds(20));
    EXPECT_THAT(fleet.Look().incidents, SizeIs(ends ? 0 : 1));
  }
}

TEST(PeerCoordinatorTakeover, APodThatHasNoAddressYetIsNoRiskHoweverLongItTakes) {
  Fleet fleet = Running(1);
  fleet.AddPod();
  fleet.pods_[1].ip.clear();
  fleet.Want();
  fleet.NewCoordinator();
  fleet.Connect(0);
  fleet.Advance(absl::Minutes(1));
  EXPECT_THAT(fleet.coordinator_->assumed_terminated(), ElementsAre("uid1"));
  EXPECT_THAT(fleet.Look().incidents, IsEmpty());
}

// It led a view of its own of which neither the others nor the controller have heard.
TEST(PeerCoordinatorTakeover, AStrangerThatComesBackWithAStateIsToldOfAfterAll) {
  Fleet fleet = Running(2);
  fleet.AddPod();
  fleet.desired_.workers = 3;
  fleet.Want();
  const ViewNumber seen = fleet.Look().newest_view;
  fleet.Advance(absl::Seconds(1.5), /*mute=*/{0, 1});
  fleet.connected_ = {};
  fleet.Start(2);
  fleet.Advance(absl::Seconds(40), /*mute=*/{0, 1});
  ASSERT_TRUE(fleet.members_.at(2).state());
  fleet.seen_ = seen;
  fleet.NewCoordinator();
  fleet.Connect(0);
  fleet.Connect(1);
  fleet.Advance(absl::Seconds(2.5));
  ASSERT_THAT(fleet.Look().incidents, IsEmpty());

  fleet.now_ += absl::Milliseconds(100);
  const absl::Time back = fleet.now_;
  fleet.Connect(2);
  ASSERT_THAT(fleet.Look().incidents, SizeIs(1));
  EXPECT_EQ(fleet.Look().incidents[0].reason, "StepsAtRisk");
  EXPECT_EQ(fleet.Look().incidents[0].pod, "w2");
  EXPECT_LT(fleet.Look().incidents[0].time, back) << "it counted as ended before that";
}

TEST(PeerCoordinatorTakeover, WhoWasGivenUpIsTakenBackAtOnceWhereNobodyElseIsLeft) {
  Fleet fleet = Running(2);
  fleet.NewCoordinator();
  fleet.Connect(0);
  fleet.Advance(absl::Seconds(2.5), /*mute=*/{1});
  ASSERT_THAT(fleet.coordinator_->assumed_terminated(), ElementsAre("uid1"));
  fleet.pods_[0].state = PodState::kTerminated;
  fleet.members_.erase(0);
  fleet.connected_.erase(0);
  fleet.Want();
  fleet.Connect(1);
  fleet.Advance(absl::Seconds(1.5));
  EXPECT_THAT(fleet.Running(), ElementsAre(1));
  EXPECT_EQ(fleet.members_.at(1).state()->step, 1);
  EXPECT_THAT(fleet.coordinator_->assumed_terminated(), IsEmpty());
}

// Two are wanted at least. Those who go on get their view though they are fewer: whoever waits to
// be taken back makes up the number.
TEST(PeerCoordinatorTakeover, WhoReturnsIsCountedWhereTheOthersAloneAreTooFew) {
  Fleet fleet = Running(2);
  fleet.desired_.min_workers = 2;
  fleet.NewCoordinator();
  fleet.Connect(0);
  fleet.Advance(absl::Seconds(2.5), /*mute=*/{1});
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("1 of at least 2"));
  fleet.Connect(1);
  fleet.Advance(absl::Seconds(0.5));
  EXPECT_THAT(fleet.coordinator_->assumed_terminated(), IsEmpty());
  fleet.Step({0, 1});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1));
}

}  // namespace
}  // namespace starling::membership
