// SPDX-License-Identifier: Apache-2.0
// A coordinator that takes over from another: whom it waits for, and what it tells of the silent.
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/peer_cluster.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(PeerCoordinatorTakeover, ASuccessorThatHearsEveryoneAdoptsTheRunningView) {
  Cluster cluster = Running(2);
  cluster.NewCoordinator();
  cluster.Connect(0);
  EXPECT_THAT(cluster.Look().waiting, HasSubstr("w1"));
  cluster.Connect(1);
  EXPECT_THAT(cluster.Look().waiting, "");
  EXPECT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_EQ(cluster.members_.at(0).view()->number, MakeViewNumber(1, 1));
  cluster.Step({0, 1});
  EXPECT_EQ(cluster.members_.at(0).state(), (StateId{MakeViewNumber(1, 1), 2}));
}

TEST(PeerCoordinatorTakeover, ASuccessorPublishesNothingBeforeTheRosterHasReported) {
  for (const bool wait : {true, false}) {
    Rules rules;
    rules.roster_wait = wait;
    Cluster cluster(2, rules);
    cluster.Start(0);
    cluster.Start(1);
    cluster.Step({0, 1});
    cluster.Advance(absl::Seconds(1.5), /*mute=*/{1});  // 0 goes on without 1, and settles steps
    cluster.Step({0});
    cluster.Step({0});
    cluster.NewCoordinator();
    cluster.Connect(1);
    cluster.Advance(absl::Seconds(1.5));
    EXPECT_EQ(cluster.Look().newest_view > MakeViewNumber(2, 0), !wait);
  }
}

TEST(PeerCoordinatorTakeover,
     AfterTheTakeoverTimeoutTheSilentCountAsEndedAndAnIncidentSaysWhatThatRisks) {
  Cluster cluster = Running(3);
  cluster.members_.erase(2);
  cluster.NewCoordinator();
  cluster.Connect(0);
  cluster.Connect(1);
  cluster.Advance(absl::Seconds(1.5));
  EXPECT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 1));
  cluster.Advance(absl::Seconds(1));
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1));
  EXPECT_EQ(cluster.members_.at(0).view()->number, MakeViewNumber(2, 1));
  EXPECT_EQ(cluster.Look().incidents[0].reason, "StepsAtRisk");
}

TEST(PeerCoordinatorTakeover, WhoHearsOfAHigherIncarnationPublishesNoMore) {
  Cluster cluster = Running(2);
  Directive newer;
  newer.incarnation = 7;
  cluster.members_.at(0).OnDirective(newer);
  cluster.Report(0);
  EXPECT_TRUE(cluster.Look().superseded);
  cluster.Kill(1);
  EXPECT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_TRUE(cluster.coordinator_->PodsToDial().empty());
}

// The coordinator dies while a third worker is just starting.
Cluster WithAStarterAndASuccessor() {
  Cluster cluster = Running(2);
  cluster.AddPod();
  cluster.desired_.workers = 3;
  cluster.Want();
  cluster.NewCoordinator();
  cluster.Connect(0);
  cluster.Connect(1);
  return cluster;
}

TEST(PeerCoordinatorTakeover, AWorkerThatIsJustStartingIsNotWaitedForAndPutsNoStepsAtRisk) {
  Cluster cluster = WithAStarterAndASuccessor();
  EXPECT_THAT(cluster.Look().waiting, HasSubstr("w2"));
  cluster.Advance(absl::Seconds(2.5));
  EXPECT_THAT(cluster.Look().waiting, "");
  EXPECT_THAT(cluster.coordinator_->assumed_terminated(), ElementsAre("uid2"));
  EXPECT_THAT(cluster.Look().incidents, IsEmpty());

  cluster.Start(2);
  cluster.Step({0, 1});
  cluster.Advance(absl::Minutes(1));
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1, 2));
  EXPECT_THAT(cluster.Look().incidents, IsEmpty());
}

TEST(PeerCoordinatorTakeover, AnAddressThatIsSilentForLongIsToldOfAsARiskAndOneThatEndsIsNot) {
  for (const bool ends : {false, true}) {
    Cluster cluster = WithAStarterAndASuccessor();
    cluster.Advance(absl::Seconds(20));
    EXPECT_THAT(cluster.Look().incidents, IsEmpty());
    if (ends) cluster.pods_[2].state = PodState::kTerminated;
    cluster.Want();
    cluster.Advance(absl::Seconds(20));
    EXPECT_THAT(cluster.Look().incidents, SizeIs(ends ? 0 : 1));
  }
}

TEST(PeerCoordinatorTakeover, APodThatHasNoAddressYetIsNoRiskHoweverLongItTakes) {
  Cluster cluster = Running(1);
  cluster.AddPod();
  cluster.pods_[1].ip.clear();
  cluster.Want();
  cluster.NewCoordinator();
  cluster.Connect(0);
  cluster.Advance(absl::Minutes(1));
  EXPECT_THAT(cluster.coordinator_->assumed_terminated(), ElementsAre("uid1"));
  EXPECT_THAT(cluster.Look().incidents, IsEmpty());
}

// It led a view of its own of which neither the others nor the controller have heard.
TEST(PeerCoordinatorTakeover, AStrangerThatComesBackWithAStateIsToldOfAfterAll) {
  Cluster cluster = Running(2);
  cluster.AddPod();
  cluster.desired_.workers = 3;
  cluster.Want();
  const ViewNumber seen = cluster.Look().newest_view;
  cluster.Advance(absl::Seconds(1.5), /*mute=*/{0, 1});
  cluster.connected_ = {};
  cluster.Start(2);
  cluster.Advance(absl::Seconds(40), /*mute=*/{0, 1});
  ASSERT_TRUE(cluster.members_.at(2).state());
  cluster.seen_ = seen;
  cluster.NewCoordinator();
  cluster.Connect(0);
  cluster.Connect(1);
  cluster.Advance(absl::Seconds(2.5));
  ASSERT_THAT(cluster.Look().incidents, IsEmpty());

  cluster.now_ += absl::Milliseconds(100);
  const absl::Time back = cluster.now_;
  cluster.Connect(2);
  ASSERT_THAT(cluster.Look().incidents, SizeIs(1));
  EXPECT_EQ(cluster.Look().incidents[0].reason, "StepsAtRisk");
  EXPECT_EQ(cluster.Look().incidents[0].pod, "w2");
  EXPECT_LT(cluster.Look().incidents[0].time, back) << "it counted as ended before that";
}

TEST(PeerCoordinatorTakeover, WhoWasGivenUpIsTakenBackAtOnceWhereNobodyElseIsLeft) {
  Cluster cluster = Running(2);
  cluster.NewCoordinator();
  cluster.Connect(0);
  cluster.Advance(absl::Seconds(2.5), /*mute=*/{1});
  ASSERT_THAT(cluster.coordinator_->assumed_terminated(), ElementsAre("uid1"));
  cluster.pods_[0].state = PodState::kTerminated;
  cluster.members_.erase(0);
  cluster.connected_.erase(0);
  cluster.Want();
  cluster.Connect(1);
  cluster.Advance(absl::Seconds(1.5));
  EXPECT_THAT(cluster.Running(), ElementsAre(1));
  EXPECT_EQ(cluster.members_.at(1).state()->step, 1);
  EXPECT_THAT(cluster.coordinator_->assumed_terminated(), IsEmpty());
}

// Two are wanted at least. Those who go on get their view though they are fewer: whoever waits to
// be taken back makes up the number.
TEST(PeerCoordinatorTakeover, WhoReturnsIsCountedWhereTheOthersAloneAreTooFew) {
  Cluster cluster = Running(2);
  cluster.desired_.min_workers = 2;
  cluster.NewCoordinator();
  cluster.Connect(0);
  cluster.Advance(absl::Seconds(2.5), /*mute=*/{1});
  EXPECT_THAT(cluster.Look().waiting, HasSubstr("1 of at least 2"));
  cluster.Connect(1);
  cluster.Advance(absl::Seconds(0.5));
  EXPECT_THAT(cluster.coordinator_->assumed_terminated(), IsEmpty());
  cluster.Step({0, 1});
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1));
}

}  // namespace
}  // namespace starling::membership
