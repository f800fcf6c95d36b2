// SPDX-License-Identifier: Apache-2.0
// Who is there, who is in the view, who may go.
#include "trainer/parameter_server/shard_coordinator.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/shard_fleet.h"

namespace starling::parameter_server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST(ShardCoordinator, NothingIsPublishedBeforeAWorkerKnowsTheModel) {
  Fleet fleet(1, 1);
  fleet.Start("s0");
  fleet.Settle();
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("a worker that has read model and data"));
  EXPECT_EQ(fleet.Look().newest_view, 0U);
  fleet.Start("w0");
  fleet.Settle();
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_EQ(fleet.Look().waiting, "");
  EXPECT_EQ(fleet["s0"].told.layout().samples(), kSamples);
}

TEST(ShardCoordinator, TheFirstViewWaitsAMomentForThoseWhoAreExpected) {
  Fleet fleet(2, 2);
  fleet.Start("s0");
  fleet.Start("w1");
  fleet.Settle();
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("1 of 2 are there"));
  fleet.Advance(absl::Seconds(0.8));
  EXPECT_EQ(fleet.Look().newest_view, 0U);
  fleet.Advance(absl::Seconds(0.4));
  EXPECT_NE(fleet.Look().newest_view, 0U);
}

TEST(ShardCoordinator, PodsOfIPv6AreInTheViewWithAddressesThatCanBeDialled) {
  Fleet fleet(1, 1);
  for (auto& pod : fleet.pods_) pod.ip = "fd00::9";
  fleet.NewCoordinator();
  fleet.Start("s0");
  fleet.Start("w0");
  fleet.Settle();
  ASSERT_NE(fleet.coordinator_->view(), nullptr);
  EXPECT_EQ(fleet.coordinator_->view()->servers()[0].address, "[fd00::9]:7072");
  EXPECT_EQ(fleet.coordinator_->view()->workers()[0].address, "[fd00::9]:7072");
}

TEST(ShardCoordinator, FewerThanTheMinimumAreNamed) {
  Fleet fleet(2, 1);
  fleet.desired_.min_workers = 2;
  fleet.Want();
  fleet.Start("s0");
  fleet.Start("w0");
  fleet.Settle();
  fleet.Advance(absl::Seconds(2));
  EXPECT_EQ(fleet.Look().newest_view, 0U);
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("waits for workers: 1 of at least 2"));
}

TEST(ShardCoordinator, AWorkerWithOtherDataIsLeftOutAndTheReasonIsTold) {
  Fleet fleet(2, 1);
  fleet.Start("s0");
  fleet.Start("w0");
  fleet.Start("w1").samples = 39;
  fleet.Settle();
  fleet.Advance(absl::Seconds(1.2));
  EXPECT_THAT(fleet.coordinator_->view()->workers(), SizeIs(1));
  EXPECT_THAT(fleet.MemberOf("w1").refused, HasSubstr("39 samples here"));
  EXPECT_EQ(fleet.MemberOf("w0").refused, "");
}

TEST(ShardCoordinator, WithoutProofThatTheLastHolderEndedItWaitsForIt) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.Work("w0");
  fleet.Settle();
  fleet.AddPod("s", kServerRole, 1);
  fleet.Want();
  fleet.Start("s1");
  fleet.cached_ = {};  // it has had no time to fetch anything
  fleet.Settle();
  fleet.Kill("s0");
  fleet.Advance(absl::Seconds(3));
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("may be known only to servers that do not answer"));
  const ViewNumber before = fleet.Look().newest_view;
  fleet.Advance(absl::Seconds(31));
  EXPECT_GT(fleet.Look().newest_view, before);
  EXPECT_EQ(fleet.Look().incidents.back().reason, "StepsAtRisk");
  EXPECT_TRUE(fleet.coordinator_->view()->groups[0].restore);
}

TEST(ShardCoordinator, ASuccessorAdoptsTheViewTheTurnsAndWhatIsHeld) {
  Fleet fleet = Fleet::Running(2, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.WorkAll();
  fleet.Validate("w0");
  const ViewNumber number = fleet.Look().newest_view;
  Fleet other = Fleet::Running(2, 2);
  other.Work("w0");
  other.Settle();
  const std::set<Lease> held = other["w1"].held;
  ASSERT_THAT(held, Not(IsEmpty()));
  for (Fleet* one : {&fleet, &other}) {
    one->NewCoordinator();
    for (const Pod& pod : one->pods_) {
      EXPECT_THAT(one->Look().waiting, HasSubstr("it waits for"));
      one->Connect(pod.name);
      one->Obey(one->processes_.at(pod.name));
      one->Report(pod.name);
    }
    one->Settle();
  }
  EXPECT_EQ(fleet.Look().newest_view, number);
  EXPECT_EQ(fleet["w0"].told.evaluate(), 2);
  EXPECT_EQ(fleet.Look().settled_step, 20);
  EXPECT_EQ(other["w1"].held, held);
  for (const Lease lease : held) EXPECT_FALSE(other["w0"].held.contains(lease));
}

TEST(ShardCoordinator, ASuccessorLearnsTheTablesFromServersWhereNoWorkerIsLeft) {
  Fleet fleet = Fleet::Running(1, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.Kill("w0");
  fleet.Settle();
  fleet.PodOf("w0").state = PodState::kTerminated;
  fleet.NewCoordinator();
  for (const char* name : {"s0", "s1"}) {
    fleet.Connect(name);
    fleet.Obey(fleet[name]);
    fleet.Report(name);
  }
  fleet.Settle();
  EXPECT_NE(fleet.coordinator_->view(), nullptr);
  EXPECT_EQ(fleet.Look().settled_step, 0);
}

TEST(ShardCoordinator, AfterTheTakeoverTimeoutTheSilentCountAsEnded) {
  Fleet fleet = Fleet::Running(2, 2);
  fleet.processes_.erase("s1");
  fleet.NewCoordinator();
  for (const char* name : {"s0", "w0", "w1"}) {
    fleet.Connect(name);
    fleet.Obey(fleet[name]);
    fleet.Report(name);
  }
  fleet.Advance(absl::Seconds(1.5));
  EXPECT_EQ(fleet.coordinator_->view(), nullptr);
  fleet.Advance(absl::Seconds(1));
  ASSERT_NE(fleet.coordinator_->view(), nullptr);
  EXPECT_EQ(fleet.coordinator_->view()->servers().size(), 1U);
  EXPECT_EQ(fleet.Look().incidents[0].reason, "StepsAtRisk");
}

// The old coordinator has given s0 up and leads s1 alone; its successor has heard s0, and not s1.
TEST(ShardCoordinator, WhatAServerBringsThatWasGivenUpDoesNotCountBeforeTheOthersHaveSynced) {
  for (const bool rule : {true, false}) {
    Fleet fleet(1, 2);
    fleet.rules_.return_when_synced = rule;
    fleet.Start("s0");
    fleet.Start("w0");
    fleet.Settle();
    fleet.Advance(absl::Seconds(1.5));
    ASSERT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
    for (const char* name : {"s0", "w0"}) {
      fleet[name].connected = false;
      fleet.coordinator_->OnDisconnected(fleet[name].id.pod_uid, fleet.now_);
    }
    fleet.Start("s1");
    fleet.Settle();
    fleet.Advance(absl::Seconds(40));
    ASSERT_TRUE(fleet["s1"].installed);
    ASSERT_EQ(fleet["s1"].installed->number, MakeViewNumber(1, 2));
    ASSERT_FALSE(fleet["s1"].installed->Has(fleet["s0"].id));

    fleet.NewCoordinator();
    for (const char* name : {"s0", "w0"}) {
      fleet.Connect(name);
      fleet.Obey(fleet[name]);
      fleet.Report(name);
    }
    fleet.Advance(absl::Seconds(31));
    ASSERT_NE(fleet.coordinator_->view(), nullptr);
    ASSERT_EQ(fleet.coordinator_->view()->number, MakeViewNumber(1, 1));
    fleet.Connect("s1");
    fleet.Obey(fleet["s1"]);
    fleet.Report("s1");
    EXPECT_EQ(fleet.coordinator_->view()->number, MakeViewNumber(2, 1));
    EXPECT_TRUE(fleet.coordinator_->view()->groups[0].Has(fleet["s0"].id));
    EXPECT_EQ(fleet.coordinator_->view()->groups[0].Has(fleet["s1"].id), !rule)
        << "its state, of view 1-2, is later than that of s0, of view 1-1";
    fleet.Settle();
    fleet.Advance(absl::Seconds(1));
    EXPECT_THAT(fleet.coordinator_->view()->servers(), SizeIs(2));
    EXPECT_THAT(fleet.coordinator_->assumed_terminated(), IsEmpty());
  }
}

TEST(ShardCoordinator, WhoIsJustStartingWhenASuccessorTakesOverPutsNothingAtRisk) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.AddPod("s", kServerRole, 1);
  fleet.AddPod("w", kWorkerRole, 2);
  fleet.desired_.servers = 2;
  fleet.desired_.workers = 3;
  fleet.NewCoordinator();
  for (const char* name : {"s0", "w0", "w1"}) {
    fleet.Connect(name);
    fleet.Obey(fleet[name]);
    fleet.Report(name);
  }
  fleet.Advance(absl::Seconds(2.5));
  ASSERT_NE(fleet.coordinator_->view(), nullptr) << "nobody waits for them";
  EXPECT_THAT(fleet.coordinator_->assumed_terminated(), SizeIs(2));
  EXPECT_THAT(fleet.Look().incidents, IsEmpty());

  fleet.Start("s1");
  fleet.Start("w2");
  fleet.Settle();
  fleet.Advance(absl::Minutes(1));
  EXPECT_THAT(fleet.coordinator_->view()->servers(), SizeIs(2));
  EXPECT_THAT(fleet.coordinator_->view()->workers(), SizeIs(3));
  EXPECT_THAT(fleet.Look().incidents, IsEmpty());
}

// Its first words come before it has heard of this coordinator: the one that ended does not speak.
TEST(ShardCoordinator, AServerWhoseProcessIsReplacedIsOneIncident) {
  Fleet fleet = Fleet::Running(1, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.Kill("s0");
  membership::LastExit killed;
  killed.signal = 9;
  fleet.Start("s0", killed);
  fleet.Settle();
  fleet.Advance(absl::Seconds(0.3));
  ASSERT_THAT(fleet.Look().incidents, SizeIs(1));
  EXPECT_EQ(fleet.Look().incidents[0].reason, "ParameterServerLost");
  ASSERT_TRUE(fleet.Look().incidents[0].exit.has_value());
  EXPECT_EQ(fleet.Look().incidents[0].exit->signal, 9);
}

TEST(ShardCoordinator, WhoHearsOfAHigherIncarnationPublishesNoMore) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet["w0"].incarnation = 7;
  fleet.Report("w0");
  EXPECT_TRUE(fleet.Look().superseded);
  EXPECT_TRUE(fleet.coordinator_->PodsToDial().empty());
}

TEST(ShardCoordinator, BothRolesAreDialledByTheirNames) {
  Fleet fleet(1, 1);
  const auto dial = fleet.coordinator_->PodsToDial();
  EXPECT_EQ(dial.at("uid-w0").role, "worker");
  EXPECT_EQ(dial.at("uid-s0").role, "parameter-server");
}

TEST(ShardCoordinator, ADrainingServerIsReleasedOnceTheOthersHoldItsShards) {
  Fleet fleet = Fleet::Running(1, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.PodOf("s1").state = PodState::kDraining;
  fleet.desired_.servers = 1;
  fleet.Want();
  fleet.Settle();
  fleet.Advance(absl::Seconds(0.2));
  EXPECT_TRUE(fleet["s1"].released);
  EXPECT_TRUE(fleet.MemberOf("s1").drained);
  EXPECT_EQ(fleet.coordinator_->view()->servers().size(), 1U);
  EXPECT_THAT(fleet.Look().incidents, IsEmpty());
  EXPECT_FALSE(fleet["s0"].released);
}

TEST(ShardCoordinator, ALeavingWorkerFinishesWhatItHolds) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  ASSERT_THAT(fleet["w1"].held, Not(IsEmpty()));
  fleet["w1"].leaving = true;
  fleet.Settle();
  EXPECT_EQ(fleet.coordinator_->view()->workers().size(), 2U);
  EXPECT_FALSE(fleet["w1"].released);
  fleet.Work("w1");
  fleet.Settle();
  fleet.Advance(absl::Seconds(0.1));
  EXPECT_EQ(fleet.coordinator_->view()->workers().size(), 1U);
  EXPECT_TRUE(fleet["w1"].released);
  EXPECT_THAT(fleet["w1"].held, IsEmpty());
}

TEST(ShardCoordinator, ALeavingWorkerThatHangsIsWaitedForAWhileOnly) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  fleet["w1"].leaving = true;
  fleet.Settle();
  fleet.Advance(absl::Seconds(4.95));
  EXPECT_FALSE(fleet["w1"].released);
  fleet.Advance(absl::Seconds(0.05));
  EXPECT_TRUE(fleet["w1"].released);
}

// Suspension: nobody waits for a view that is never made, nor for the end of its grace.
TEST(ShardCoordinator, WhatIsHaltedAndSavedMayGoAtOnce) {
  Fleet fleet = Fleet::Running(2, 2);
  for (const char* name : {"w0", "w1"}) fleet.Work(name);
  fleet.Settle();
  fleet.desired_.settings.generation = 2;
  fleet.desired_.settings.halt = true;
  fleet.Want();
  fleet.Settle();
  for (const char* name : {"w0", "w1"}) fleet.Work(name);
  fleet.Settle();
  ASSERT_TRUE(fleet.Look().stopped);
  EXPECT_FALSE(fleet["s0"].released) << "nobody has asked it to go";
  for (const char* name : {"s0", "s1", "w0", "w1"}) {
    fleet.PodOf(name).state = PodState::kDraining;
  }
  fleet.Want();
  fleet.Settle();
  for (const char* name : {"s0", "s1", "w0", "w1"}) EXPECT_TRUE(fleet[name].released) << name;
}

TEST(ShardCoordinator, WhenAllServersAreAskedToGoTheySaveFirst) {
  Fleet fleet = Fleet::Running(1, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.muted_ = {"s1"};
  for (const char* name : {"s0", "s1"}) fleet.PodOf(name).state = PodState::kDraining;
  fleet.Want();
  fleet.Settle();
  EXPECT_FALSE(fleet["s0"].released);
  fleet.muted_.clear();
  fleet.Settle();
  EXPECT_TRUE(fleet["s0"].released);
  EXPECT_TRUE(fleet["s1"].released);
  EXPECT_GT(fleet["s1"].checkpoint_turn, 0);
}

TEST(ShardCoordinator, AtTheSecondFailureByBlameAloneTheMostBlamedStaysOutForAWhile) {
  Fleet fleet = Fleet::Running(3, 2);
  const auto fail = [&] {
    const MemberId bad = fleet["w2"].id;
    for (auto& [name, process] : fleet.processes_) {
      process.broken = true;
      if (process.server) process.unreachable = {bad};
    }
    for (auto& [name, process] : fleet.processes_) fleet.Report(name);
    fleet.Settle();
  };
  fail();
  EXPECT_EQ(fleet.coordinator_->view()->workers().size(), 3U);
  fail();
  EXPECT_EQ(fleet.coordinator_->view()->workers().size(), 2U);
  EXPECT_EQ(fleet.Look().incidents.back().reason, "WorkerUnreachable");
  EXPECT_EQ(fleet.Look().incidents.back().pod, "w2");
  fleet.Advance(absl::Seconds(6));
  EXPECT_EQ(fleet.coordinator_->view()->workers().size(), 3U);
}

TEST(ShardCoordinator, NobodyIsEvictedWithoutWhomAShardWouldBeLost) {
  Fleet fleet = Fleet::Running(1, 1);
  for (int i = 0; i < 3; ++i) {
    const MemberId bad = fleet["s0"].id;
    for (auto& [name, process] : fleet.processes_) process.broken = true;
    fleet["w0"].unreachable = {bad};
    for (auto& [name, process] : fleet.processes_) fleet.Report(name);
    fleet.Settle();
  }
  EXPECT_THAT(fleet.coordinator_->view()->servers(), SizeIs(1));
  EXPECT_THAT(fleet.coordinator_->view()->workers(), SizeIs(1));
}

TEST(ShardCoordinator, WhenTheControllerHasTheResultEverybodyIsTold) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.desired_.finished = true;
  fleet.Want();
  EXPECT_TRUE(fleet.coordinator_->finished());
  EXPECT_TRUE(fleet.coordinator_->DirectiveFor("uid-s0").finished);
  EXPECT_FALSE(fleet.coordinator_->AllGone());
  fleet.Kill("s0");
  fleet.Kill("w0");
  EXPECT_TRUE(fleet.coordinator_->AllGone());
}

}  // namespace
}  // namespace starling::parameter_server
