// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/peer_coordinator.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/peer_fleet.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(PeerCoordinator, TheFirstViewHoldsAllWorkersThatAreExpected) {
  Fleet fleet(3);
  fleet.Start(0);
  fleet.Start(1);
  EXPECT_EQ(fleet.Look().newest_view, 0U);
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("2 of 3"));
  fleet.Start(2);
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_TRUE(fleet.Look().view_synced);
}

TEST(PeerCoordinator, PodsOfIPv6AreInTheViewWithAddressesThatCanBeDialled) {
  Fleet fleet(1);
  fleet.pods_[0].ip = "fd00::9";
  fleet.NewCoordinator();
  fleet.Start(0);
  ASSERT_NE(fleet.members_.at(0).view(), nullptr);
  EXPECT_EQ(fleet.members_.at(0).view()->members[0].address, "[fd00::9]:7072");
}

TEST(PeerCoordinator, ButItWaitsForNobodyForLongOnceThereAreEnough) {
  Fleet fleet(3);
  fleet.Start(0);
  fleet.Advance(absl::Seconds(1.5));
  EXPECT_THAT(fleet.Running(), ElementsAre(0));
}

TEST(PeerCoordinator, NothingStartsBelowTheMinimum) {
  Fleet fleet(3);
  fleet.desired_.min_workers = 2;
  fleet.Want();
  fleet.Start(0);
  fleet.Advance(absl::Seconds(10));
  EXPECT_THAT(fleet.Running(), ElementsAre());
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("1 of at least 2"));
}

TEST(PeerCoordinator, AKilledWorkerIsLeftBehindAtOnce) {
  Fleet fleet = Running(3);
  fleet.Kill(1);
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 2));
  ASSERT_THAT(fleet.Look().incidents, SizeIs(1));
  EXPECT_EQ(fleet.Look().incidents[0].reason, "WorkerLost");
  EXPECT_EQ(fleet.Look().incidents[0].pod, "w1");
  EXPECT_EQ(fleet.Look().incidents[0].message, "its process ended; 2 workers go on");
  EXPECT_FALSE(fleet.Look().incidents[0].recovery);

  fleet.now_ += absl::Milliseconds(30);
  fleet.Step({0, 2});
  EXPECT_EQ(fleet.Look().incidents[0].recovery, absl::Milliseconds(30));
  EXPECT_EQ(fleet.Look().incidents[0].repeated_steps, 1);
}

TEST(PeerCoordinator, DetectionCountsFromTheEndOfTheConnectionAndSilenceFromTheLastReport) {
  Fleet fleet = Running(2);
  fleet.now_ += absl::Milliseconds(80);
  fleet.members_.erase(1);
  fleet.coordinator_->OnDisconnected(fleet.Uid(1), fleet.now_);
  fleet.now_ += absl::Milliseconds(2);
  fleet.coordinator_->OnRefused(fleet.Uid(1), fleet.now_);
  ASSERT_THAT(fleet.Look().incidents, SizeIs(1));
  EXPECT_EQ(fleet.Look().incidents[0].detection, absl::Milliseconds(2));
  EXPECT_EQ(fleet.Look().incidents[0].silence, absl::Milliseconds(82));
}

TEST(PeerCoordinator, AnAddressThatAnswersAgainIsNotTheProcessThatWasThereBefore) {
  Fleet fleet = Running(3);
  fleet.Kill(1);
  fleet.coordinator_->OnConnected(fleet.Uid(1), fleet.now_);
  fleet.Step({0, 2});
  fleet.Step({0, 2});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 2));
  EXPECT_FALSE(fleet.Look().members[1].connected);
}

TEST(PeerCoordinator, TheReplacementJoinsWithoutAnInterruptionAndTellsHowTheOldOneEnded) {
  Fleet fleet = Running(3);
  fleet.Kill(1);
  fleet.Step({0, 2});
  fleet.Start(1, LastExit{0, 9, "last words", 5});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 2));
  fleet.Step({0, 2});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  EXPECT_EQ(fleet.members_.at(1).state(), fleet.members_.at(0).state());
  ASSERT_THAT(fleet.Look().incidents, SizeIs(1));
  EXPECT_EQ(fleet.Look().incidents[0].exit->signal, 9);
  EXPECT_EQ(fleet.Look().incidents[0].exit->log_tail, "last words");
}

TEST(PeerCoordinator, ASilentWorkerIsLeftBehindAfterTheHeartbeatTimeoutAndReturnsAsALaggard) {
  Fleet fleet = Running(2);
  fleet.Advance(absl::Milliseconds(900), /*mute=*/{1});
  EXPECT_THAT(fleet.Look().incidents, SizeIs(0));
  fleet.Advance(absl::Milliseconds(300), /*mute=*/{1});
  ASSERT_THAT(fleet.Look().incidents, SizeIs(1));
  EXPECT_EQ(fleet.Look().incidents[0].reason, "WorkerSilent");
  fleet.Step({0});
  fleet.Settle();
  fleet.Step({0});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1));
  EXPECT_EQ(fleet.members_.at(1).state(), fleet.members_.at(0).state());
}

TEST(PeerCoordinator, ItDoesNotTakeItsOwnFreezeForTheSilenceOfOthers) {
  Fleet fleet = Running(2);
  fleet.Advance(absl::Milliseconds(200));
  fleet.now_ += absl::Seconds(30);
  fleet.coordinator_->OnTick(fleet.now_);
  EXPECT_THAT(fleet.Look().incidents, SizeIs(0));
  fleet.Advance(absl::Milliseconds(1300), /*mute=*/{1});
  EXPECT_THAT(fleet.Look().incidents, SizeIs(1));
}

TEST(PeerCoordinator, ALoneWorkerThatRestartsIsWaivedAndRestores) {
  Fleet fleet = Running(1);
  fleet.Kill(0);
  EXPECT_THAT(fleet.Running(), ElementsAre());
  fleet.Start(0, LastExit{0, 9, "", 5});
  EXPECT_THAT(fleet.Running(), ElementsAre(0));
  EXPECT_TRUE(fleet.members_.at(0).view()->groups[0].restore);
  EXPECT_THAT(fleet.members_.at(0).view()->groups[0].waived, ElementsAre(MakeViewNumber(1, 1)));
}

TEST(PeerCoordinator, WithoutProofThatTheLastHoldersEndedItWaitsForThem) {
  Fleet fleet = Running(1);
  fleet.AddPod();
  fleet.Want();
  fleet.members_.erase(0);
  fleet.coordinator_->OnDisconnected(fleet.Uid(0), fleet.now_);
  fleet.coordinator_->OnRefused(fleet.Uid(0), fleet.now_);
  fleet.Start(1);
  fleet.Advance(absl::Seconds(3));
  EXPECT_THAT(fleet.Running(), ElementsAre());
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("may be known only to workers that do not answer"));

  fleet.pods_[0].state = PodState::kTerminated;
  fleet.Want();
  fleet.Settle();
  EXPECT_THAT(fleet.Running(), ElementsAre(1));
}

TEST(PeerCoordinator, AWorkerMoreJoinsAtABoundary) {
  Fleet fleet = Running(2);
  fleet.AddPod();
  fleet.desired_.workers = 3;
  fleet.Want();
  fleet.Start(2);
  EXPECT_EQ(fleet.members_.at(0).view()->number, MakeViewNumber(1, 1));
  fleet.Step({0, 1});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  EXPECT_EQ(fleet.members_.at(2).state()->step, 2);
  EXPECT_THAT(fleet.Look().incidents, SizeIs(0));
}

TEST(PeerCoordinator, AJoinerThatDiesBeforeTheBoundaryCostsNothing) {
  Fleet fleet = Running(2);
  fleet.AddPod();
  fleet.desired_.workers = 3;
  fleet.Want();
  fleet.Start(2);
  fleet.Kill(2);
  fleet.Step({0, 1});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1));
  EXPECT_EQ(fleet.members_.at(0).state()->step, 2);
  EXPECT_THAT(fleet.Look().incidents, SizeIs(0));
}

TEST(PeerCoordinator, ADrainingWorkerLeavesAtABoundaryAndIsReleasedOnceTheRestIsSynced) {
  Fleet fleet = Running(3);
  fleet.pods_[1].state = PodState::kDraining;
  fleet.desired_.workers = 2;
  fleet.Want();
  fleet.Settle();
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  fleet.Step({0, 1, 2});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 2));
  EXPECT_TRUE(fleet.exited_.contains(1));
  EXPECT_TRUE(fleet.Look().members[1].drained);
  EXPECT_EQ(fleet.members_.at(0).state()->step, 2);
}

// It still holds what the others may have to copy.
TEST(PeerCoordinator, WhoLeavesStaysUntilAllThatGoOnHaveReportedThatTheyAreSynced) {
  Fleet fleet = Running(3);
  fleet.pods_[1].state = PodState::kDraining;
  fleet.desired_.workers = 2;
  fleet.Want();
  fleet.Settle();
  fleet.connected_.erase(2);  // it runs, and its reports are slow
  fleet.Step({0, 1, 2});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 2));
  EXPECT_EQ(fleet.members_.at(1).phase(), Phase::kLinger);
  EXPECT_FALSE(fleet.exited_.contains(1));
  fleet.connected_.insert(2);
  fleet.Settle();
  EXPECT_TRUE(fleet.exited_.contains(1));
}

TEST(PeerCoordinator, ReplacementsJoinBeforeLeaversLeave) {
  Fleet fleet = Running(2);
  fleet.AddPod();
  fleet.Want();
  fleet.Start(2);
  fleet.pods_[0].state = PodState::kDraining;
  fleet.Want();
  fleet.Settle();
  fleet.Step({0, 1});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  fleet.Settle();
  fleet.Step({0, 1, 2});
  EXPECT_THAT(fleet.Running(), ElementsAre(1, 2));
}

TEST(PeerCoordinator, AWorkerWhoseArithmeticDiffersIsNotAdmittedAndTheReasonIsTold) {
  Fleet fleet(2);
  fleet.Start(0, {}, "haswell/4.0");
  fleet.Start(1, {}, "skylake/4.0");
  fleet.Advance(absl::Seconds(1.5));
  EXPECT_THAT(fleet.Running(), ElementsAre(0));
  fleet.Step({0});
  fleet.Step({0});
  EXPECT_THAT(fleet.Running(), ElementsAre(0));
  EXPECT_THAT(fleet.Look().members[1].refused, HasSubstr("skylake/4.0"));
}

TEST(PeerCoordinator, AtTheSecondFailureByBlameAloneTheMostBlamedIsEvicted) {
  Fleet fleet = Running(3);
  fleet.Abort(0, {2});
  fleet.Abort(2, {0});
  fleet.Abort(1, {2});
  fleet.Settle();
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  fleet.Abort(0, {2});
  fleet.Abort(2, {0});
  fleet.Abort(1, {2});
  fleet.Settle();
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1));
  EXPECT_EQ(fleet.Look().incidents.back().reason, "WorkerUnreachable");
  EXPECT_EQ(fleet.Look().incidents.back().pod, "w2");
}

TEST(PeerCoordinator, OneAbortedMemberWaitsForTheOthersToSayWhoIsGone) {
  Fleet fleet = Running(3);
  fleet.Abort(0, {2});
  fleet.Settle();
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  fleet.Advance(absl::Milliseconds(400));
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 2));
}

TEST(PeerCoordinator, CheckpointTurnsComeWithTheIntervalWhileStepsAreMade) {
  Fleet fleet = Running(1);
  fleet.desired_.checkpoint_interval_ms = 1000;
  fleet.Want();
  fleet.Advance(absl::Seconds(0.5));
  EXPECT_EQ(fleet.coordinator_->DirectiveFor(fleet.Uid(0)).checkpoint_turn, 0);
  fleet.Advance(absl::Seconds(1));
  const std::int64_t turn = fleet.coordinator_->DirectiveFor(fleet.Uid(0)).checkpoint_turn;
  EXPECT_GT(turn, 0);
  fleet.Advance(absl::Seconds(5));
  EXPECT_EQ(fleet.coordinator_->DirectiveFor(fleet.Uid(0)).checkpoint_turn, turn)
      << "no step was made since";
}

TEST(PeerCoordinator, AHaltIsReportedOnceEveryMemberHasStopped) {
  Fleet fleet = Running(1);
  fleet.desired_.settings.generation = 2;
  fleet.desired_.settings.halt = true;
  fleet.Want();
  fleet.Settle();
  fleet.Step({0});
  EXPECT_FALSE(fleet.Look().stopped);
  Member& member = fleet.members_.at(0);
  member.OnReduced({member.view()->number, member.state()->step + 1, {}, {}, true});
  member.OnCheckpointWritten(*member.state());
  member.OnCheckpointCommitted(*member.state());
  fleet.Settle();
  EXPECT_TRUE(fleet.Look().stopped);

  fleet.desired_.settings.generation = 3;
  fleet.desired_.settings.halt = false;
  fleet.Want();
  fleet.Settle();
  EXPECT_FALSE(fleet.Look().stopped);
  EXPECT_THAT(fleet.Running(), ElementsAre(0));
}

TEST(PeerCoordinator, TheResultOfTheMembersReachesTheControllerAndItsAnswerThem) {
  Fleet fleet = Running(1);
  fleet.members_.at(0).SetTraining({"bytes", true, ""});
  fleet.Settle();
  EXPECT_EQ(fleet.Look().training.bytes, "bytes");
  fleet.desired_.finished = true;
  fleet.Want();
  fleet.Settle();
  EXPECT_TRUE(fleet.exited_.contains(0));
}

TEST(PeerCoordinator, AnOlderDesireIsIgnored) {
  Fleet fleet = Running(1);
  Desired older = fleet.desired_;
  older.sequence = 0;
  older.finished = true;
  fleet.coordinator_->OnDesired(older, fleet.now_);
  EXPECT_FALSE(fleet.coordinator_->DirectiveFor(fleet.Uid(0)).finished);
}

}  // namespace
}  // namespace starling::membership
