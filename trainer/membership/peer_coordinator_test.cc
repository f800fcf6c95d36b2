// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/peer_coordinator.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/peer_cluster.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(PeerCoordinator, TheFirstViewHoldsAllWorkersThatAreExpected) {
  Cluster cluster(3);
  cluster.Start(0);
  cluster.Start(1);
  EXPECT_EQ(cluster.Look().newest_view, 0U);
  EXPECT_THAT(cluster.Look().waiting, HasSubstr("2 of 3"));
  cluster.Start(2);
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1, 2));
  EXPECT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_TRUE(cluster.Look().view_synced);
}

TEST(PeerCoordinator, PodsOfIPv6AreInTheViewWithAddressesThatCanBeDialled) {
  Cluster cluster(1);
  cluster.pods_[0].ip = "fd00::9";
  cluster.NewCoordinator();
  cluster.Start(0);
  ASSERT_NE(cluster.members_.at(0).view(), nullptr);
  EXPECT_EQ(cluster.members_.at(0).view()->members[0].address, "[fd00::9]:7072");
}

TEST(PeerCoordinator, ButItWaitsForNobodyForLongOnceThereAreEnough) {
  Cluster cluster(3);
  cluster.Start(0);
  cluster.Advance(absl::Seconds(1.5));
  EXPECT_THAT(cluster.Running(), ElementsAre(0));
}

TEST(PeerCoordinator, NothingStartsBelowTheMinimum) {
  Cluster cluster(3);
  cluster.desired_.min_workers = 2;
  cluster.Want();
  cluster.Start(0);
  cluster.Advance(absl::Seconds(10));
  EXPECT_THAT(cluster.Running(), ElementsAre());
  EXPECT_THAT(cluster.Look().waiting, HasSubstr("1 of at least 2"));
}

TEST(PeerCoordinator, AKilledWorkerIsLeftBehindAtOnce) {
  Cluster cluster = Running(3);
  cluster.Kill(1);
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 2));
  ASSERT_THAT(cluster.Look().incidents, SizeIs(1));
  EXPECT_EQ(cluster.Look().incidents[0].reason, "WorkerLost");
  EXPECT_EQ(cluster.Look().incidents[0].pod, "w1");
  EXPECT_EQ(cluster.Look().incidents[0].message, "its process ended; 2 workers go on");
  EXPECT_FALSE(cluster.Look().incidents[0].recovery);

  cluster.now_ += absl::Milliseconds(30);
  cluster.Step({0, 2});
  EXPECT_EQ(cluster.Look().incidents[0].recovery, absl::Milliseconds(30));
  EXPECT_EQ(cluster.Look().incidents[0].repeated_steps, 1);
}

TEST(PeerCoordinator, DetectionCountsFromTheEndOfTheConnectionAndSilenceFromTheLastReport) {
  Cluster cluster = Running(2);
  cluster.now_ += absl::Milliseconds(80);
  cluster.members_.erase(1);
  cluster.coordinator_->OnDisconnected(cluster.Uid(1), cluster.now_);
  cluster.now_ += absl::Milliseconds(2);
  cluster.coordinator_->OnRefused(cluster.Uid(1), cluster.now_);
  ASSERT_THAT(cluster.Look().incidents, SizeIs(1));
  EXPECT_EQ(cluster.Look().incidents[0].detection, absl::Milliseconds(2));
  EXPECT_EQ(cluster.Look().incidents[0].silence, absl::Milliseconds(82));
}

TEST(PeerCoordinator, AnAddressThatAnswersAgainIsNotTheProcessThatWasThereBefore) {
  Cluster cluster = Running(3);
  cluster.Kill(1);
  cluster.coordinator_->OnConnected(cluster.Uid(1), cluster.now_);
  cluster.Step({0, 2});
  cluster.Step({0, 2});
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 2));
  EXPECT_FALSE(cluster.Look().members[1].connected);
}

TEST(PeerCoordinator, TheReplacementJoinsWithoutAnInterruptionAndTellsHowTheOldOneEnded) {
  Cluster cluster = Running(3);
  cluster.Kill(1);
  cluster.Step({0, 2});
  cluster.Start(1, LastExit{0, 9, "last words", 5});
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 2));
  cluster.Step({0, 2});
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1, 2));
  EXPECT_EQ(cluster.members_.at(1).state(), cluster.members_.at(0).state());
  ASSERT_THAT(cluster.Look().incidents, SizeIs(1));
  EXPECT_EQ(cluster.Look().incidents[0].exit->signal, 9);
  EXPECT_EQ(cluster.Look().incidents[0].exit->log_tail, "last words");
}

TEST(PeerCoordinator, ASilentWorkerIsLeftBehindAfterTheHeartbeatTimeoutAndReturnsAsALaggard) {
  Cluster cluster = Running(2);
  cluster.Advance(absl::Milliseconds(900), /*mute=*/{1});
  EXPECT_THAT(cluster.Look().incidents, SizeIs(0));
  cluster.Advance(absl::Milliseconds(300), /*mute=*/{1});
  ASSERT_THAT(cluster.Look().incidents, SizeIs(1));
  EXPECT_EQ(cluster.Look().incidents[0].reason, "WorkerSilent");
  cluster.Step({0});
  cluster.Settle();
  cluster.Step({0});
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1));
  EXPECT_EQ(cluster.members_.at(1).state(), cluster.members_.at(0).state());
}

TEST(PeerCoordinator, ItDoesNotTakeItsOwnFreezeForTheSilenceOfOthers) {
  Cluster cluster = Running(2);
  cluster.Advance(absl::Milliseconds(200));
  cluster.now_ += absl::Seconds(30);
  cluster.coordinator_->OnTick(cluster.now_);
  EXPECT_THAT(cluster.Look().incidents, SizeIs(0));
  cluster.Advance(absl::Milliseconds(1300), /*mute=*/{1});
  EXPECT_THAT(cluster.Look().incidents, SizeIs(1));
}

TEST(PeerCoordinator, ALoneWorkerThatRestartsIsWaivedAndRestores) {
  Cluster cluster = Running(1);
  cluster.Kill(0);
  EXPECT_THAT(cluster.Running(), ElementsAre());
  cluster.Start(0, LastExit{0, 9, "", 5});
  EXPECT_THAT(cluster.Running(), ElementsAre(0));
  EXPECT_TRUE(cluster.members_.at(0).view()->groups[0].restore);
  EXPECT_THAT(cluster.members_.at(0).view()->groups[0].waived, ElementsAre(MakeViewNumber(1, 1)));
}

TEST(PeerCoordinator, WithoutProofThatTheLastHoldersEndedItWaitsForThem) {
  Cluster cluster = Running(1);
  cluster.AddPod();
  cluster.Want();
  cluster.members_.erase(0);
  cluster.coordinator_->OnDisconnected(cluster.Uid(0), cluster.now_);
  cluster.coordinator_->OnRefused(cluster.Uid(0), cluster.now_);
  cluster.Start(1);
  cluster.Advance(absl::Seconds(3));
  EXPECT_THAT(cluster.Running(), ElementsAre());
  EXPECT_THAT(cluster.Look().waiting, HasSubstr("may be known only to workers that do not answer"));

  cluster.pods_[0].state = PodState::kTerminated;
  cluster.Want();
  cluster.Settle();
  EXPECT_THAT(cluster.Running(), ElementsAre(1));
}

TEST(PeerCoordinator, AWorkerMoreJoinsAtABoundary) {
  Cluster cluster = Running(2);
  cluster.AddPod();
  cluster.desired_.workers = 3;
  cluster.Want();
  cluster.Start(2);
  EXPECT_EQ(cluster.members_.at(0).view()->number, MakeViewNumber(1, 1));
  cluster.Step({0, 1});
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1, 2));
  EXPECT_EQ(cluster.members_.at(2).state()->step, 2);
  EXPECT_THAT(cluster.Look().incidents, SizeIs(0));
}

TEST(PeerCoordinator, AJoinerThatDiesBeforeTheBoundaryCostsNothing) {
  Cluster cluster = Running(2);
  cluster.AddPod();
  cluster.desired_.workers = 3;
  cluster.Want();
  cluster.Start(2);
  cluster.Kill(2);
  cluster.Step({0, 1});
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1));
  EXPECT_EQ(cluster.members_.at(0).state()->step, 2);
  EXPECT_THAT(cluster.Look().incidents, SizeIs(0));
}

TEST(PeerCoordinator, ADrainingWorkerLeavesAtABoundaryAndIsReleasedOnceTheRestIsSynced) {
  Cluster cluster = Running(3);
  cluster.pods_[1].state = PodState::kDraining;
  cluster.desired_.workers = 2;
  cluster.Want();
  cluster.Settle();
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1, 2));
  cluster.Step({0, 1, 2});
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 2));
  EXPECT_TRUE(cluster.exited_.contains(1));
  EXPECT_TRUE(cluster.Look().members[1].drained);
  EXPECT_EQ(cluster.members_.at(0).state()->step, 2);
}

// It still holds what the others may have to copy.
TEST(PeerCoordinator, WhoLeavesStaysUntilAllThatGoOnHaveReportedThatTheyAreSynced) {
  Cluster cluster = Running(3);
  cluster.pods_[1].state = PodState::kDraining;
  cluster.desired_.workers = 2;
  cluster.Want();
  cluster.Settle();
  cluster.connected_.erase(2);  // it runs, and its reports are slow
  cluster.Step({0, 1, 2});
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 2));
  EXPECT_EQ(cluster.members_.at(1).phase(), Phase::kLinger);
  EXPECT_FALSE(cluster.exited_.contains(1));
  cluster.connected_.insert(2);
  cluster.Settle();
  EXPECT_TRUE(cluster.exited_.contains(1));
}

TEST(PeerCoordinator, ReplacementsJoinBeforeLeaversLeave) {
  Cluster cluster = Running(2);
  cluster.AddPod();
  cluster.Want();
  cluster.Start(2);
  cluster.pods_[0].state = PodState::kDraining;
  cluster.Want();
  cluster.Settle();
  cluster.Step({0, 1});
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1, 2));
  cluster.Settle();
  cluster.Step({0, 1, 2});
  EXPECT_THAT(cluster.Running(), ElementsAre(1, 2));
}

TEST(PeerCoordinator, AWorkerWhoseArithmeticDiffersIsNotAdmittedAndTheReasonIsTold) {
  Cluster cluster(2);
  cluster.Start(0, {}, "haswell/4.0");
  cluster.Start(1, {}, "skylake/4.0");
  cluster.Advance(absl::Seconds(1.5));
  EXPECT_THAT(cluster.Running(), ElementsAre(0));
  cluster.Step({0});
  cluster.Step({0});
  EXPECT_THAT(cluster.Running(), ElementsAre(0));
  EXPECT_THAT(cluster.Look().members[1].refused, HasSubstr("skylake/4.0"));
}

TEST(PeerCoordinator, AtTheSecondFailureByBlameAloneTheMostBlamedIsEvicted) {
  Cluster cluster = Running(3);
  cluster.Abort(0, {2});
  cluster.Abort(2, {0});
  cluster.Abort(1, {2});
  cluster.Settle();
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1, 2));
  cluster.Abort(0, {2});
  cluster.Abort(2, {0});
  cluster.Abort(1, {2});
  cluster.Settle();
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1));
  EXPECT_EQ(cluster.Look().incidents.back().reason, "WorkerUnreachable");
  EXPECT_EQ(cluster.Look().incidents.back().pod, "w2");
}

TEST(PeerCoordinator, OneAbortedMemberWaitsForTheOthersToSayWhoIsGone) {
  Cluster cluster = Running(3);
  cluster.Abort(0, {2});
  cluster.Settle();
  EXPECT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 1));
  cluster.Advance(absl::Milliseconds(400));
  EXPECT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 2));
}

TEST(PeerCoordinator, CheckpointTurnsComeWithTheIntervalWhileStepsAreMade) {
  Cluster cluster = Running(1);
  cluster.desired_.checkpoint_interval_ms = 1000;
  cluster.Want();
  cluster.Advance(absl::Seconds(0.5));
  EXPECT_EQ(cluster.coordinator_->DirectiveFor(cluster.Uid(0)).checkpoint_turn, 0);
  cluster.Advance(absl::Seconds(1));
  const std::int64_t turn = cluster.coordinator_->DirectiveFor(cluster.Uid(0)).checkpoint_turn;
  EXPECT_GT(turn, 0);
  cluster.Advance(absl::Seconds(5));
  EXPECT_EQ(cluster.coordinator_->DirectiveFor(cluster.Uid(0)).checkpoint_turn, turn)
      << "no step was made since";
}

TEST(PeerCoordinator, AHaltIsReportedOnceEveryMemberHasStopped) {
  Cluster cluster = Running(1);
  cluster.desired_.settings.generation = 2;
  cluster.desired_.settings.halt = true;
  cluster.Want();
  cluster.Settle();
  cluster.Step({0});
  EXPECT_FALSE(cluster.Look().stopped);
  Member& member = cluster.members_.at(0);
  member.OnReduced({member.view()->number, member.state()->step + 1, {}, {}, true});
  member.OnCheckpointWritten(*member.state());
  member.OnCheckpointCommitted(*member.state());
  cluster.Settle();
  EXPECT_TRUE(cluster.Look().stopped);

  cluster.desired_.settings.generation = 3;
  cluster.desired_.settings.halt = false;
  cluster.Want();
  cluster.Settle();
  EXPECT_FALSE(cluster.Look().stopped);
  EXPECT_THAT(cluster.Running(), ElementsAre(0));
}

TEST(PeerCoordinator, TheResultOfTheMembersReachesTheControllerAndItsAnswerThem) {
  Cluster cluster = Running(1);
  cluster.members_.at(0).SetTraining({"bytes", true, ""});
  cluster.Settle();
  EXPECT_EQ(cluster.Look().training.bytes, "bytes");
  cluster.desired_.finished = true;
  cluster.Want();
  cluster.Settle();
  EXPECT_TRUE(cluster.exited_.contains(0));
}

TEST(PeerCoordinator, AnOlderDesireIsIgnored) {
  Cluster cluster = Running(1);
  Desired older = cluster.desired_;
  older.sequence = 0;
  older.finished = true;
  cluster.coordinator_->OnDesired(older, cluster.now_);
  EXPECT_FALSE(cluster.coordinator_->DirectiveFor(cluster.Uid(0)).finished);
}

}  // namespace
}  // namespace starling::membership
