// SPDX-License-Identifier: Apache-2.0
// Who is there, who is in the view, who may go.
#include "trainer/parameter_server/shard_coordinator.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/shard_cluster.h"

namespace starling::parameter_server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST(ShardCoordinator, NothingIsPublishedBeforeAWorkerKnowsTheModel) {
  Cluster cluster(1, 1);
  cluster.Start("s0");
  cluster.Settle();
  EXPECT_THAT(cluster.Look().waiting, HasSubstr("a worker that has read model and data"));
  EXPECT_EQ(cluster.Look().newest_view, 0U);
  cluster.Start("w0");
  cluster.Settle();
  EXPECT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_EQ(cluster.Look().waiting, "");
  EXPECT_EQ(cluster["s0"].told.layout().samples(), kSamples);
}

TEST(ShardCoordinator, TheFirstViewWaitsAMomentForThoseWhoAreExpected) {
  Cluster cluster(2, 2);
  cluster.Start("s0");
  cluster.Start("w1");
  cluster.Settle();
  EXPECT_THAT(cluster.Look().waiting, HasSubstr("1 of 2 are there"));
  cluster.Advance(absl::Seconds(0.8));
  EXPECT_EQ(cluster.Look().newest_view, 0U);
  cluster.Advance(absl::Seconds(0.4));
  EXPECT_NE(cluster.Look().newest_view, 0U);
}

TEST(ShardCoordinator, PodsOfIPv6AreInTheViewWithAddressesThatCanBeDialled) {
  Cluster cluster(1, 1);
  for (auto& pod : cluster.pods_) pod.ip = "fd00::9";
  cluster.NewCoordinator();
  cluster.Start("s0");
  cluster.Start("w0");
  cluster.Settle();
  ASSERT_NE(cluster.coordinator_->view(), nullptr);
  EXPECT_EQ(cluster.coordinator_->view()->servers()[0].address, "[fd00::9]:7072");
  EXPECT_EQ(cluster.coordinator_->view()->workers()[0].address, "[fd00::9]:7072");
}

TEST(ShardCoordinator, FewerThanTheMinimumAreNamed) {
  Cluster cluster(2, 1);
  cluster.desired_.min_workers = 2;
  cluster.Want();
  cluster.Start("s0");
  cluster.Start("w0");
  cluster.Settle();
  cluster.Advance(absl::Seconds(2));
  EXPECT_EQ(cluster.Look().newest_view, 0U);
  EXPECT_THAT(cluster.Look().waiting, HasSubstr("waits for workers: 1 of at least 2"));
}

TEST(ShardCoordinator, AWorkerWithOtherDataIsLeftOutAndTheReasonIsTold) {
  Cluster cluster(2, 1);
  cluster.Start("s0");
  cluster.Start("w0");
  cluster.Start("w1").samples = 39;
  cluster.Settle();
  cluster.Advance(absl::Seconds(1.2));
  EXPECT_THAT(cluster.coordinator_->view()->workers(), SizeIs(1));
  EXPECT_THAT(cluster.MemberOf("w1").refused, HasSubstr("39 samples here"));
  EXPECT_EQ(cluster.MemberOf("w0").refused, "");
}

TEST(ShardCoordinator, WithoutProofThatTheLastHolderEndedItWaitsForIt) {
  Cluster cluster = Cluster::Running(1, 1);
  cluster.Work("w0");
  cluster.Settle();
  cluster.AddPod("s", kServerRole, 1);
  cluster.Want();
  cluster.Start("s1");
  cluster.cached_ = {};  // it has had no time to fetch anything
  cluster.Settle();
  cluster.Kill("s0");
  cluster.Advance(absl::Seconds(3));
  EXPECT_THAT(cluster.Look().waiting, HasSubstr("may be known only to servers that do not answer"));
  const ViewNumber before = cluster.Look().newest_view;
  cluster.Advance(absl::Seconds(31));
  EXPECT_GT(cluster.Look().newest_view, before);
  EXPECT_EQ(cluster.Look().incidents.back().reason, "StepsAtRisk");
  EXPECT_TRUE(cluster.coordinator_->view()->groups[0].restore);
}

TEST(ShardCoordinator, ASuccessorAdoptsTheViewTheTurnsAndWhatIsHeld) {
  Cluster cluster = Cluster::Running(2, 2);
  cluster.Work("w0");
  cluster.Settle();
  cluster.WorkAll();
  cluster.Validate("w0");
  const ViewNumber number = cluster.Look().newest_view;
  Cluster other = Cluster::Running(2, 2);
  other.Work("w0");
  other.Settle();
  const std::set<Lease> held = other["w1"].held;
  ASSERT_THAT(held, Not(IsEmpty()));
  for (Cluster* one : {&cluster, &other}) {
    one->NewCoordinator();
    for (const Pod& pod : one->pods_) {
      EXPECT_THAT(one->Look().waiting, HasSubstr("it waits for"));
      one->Connect(pod.name);
      one->Obey(one->processes_.at(pod.name));
      one->Report(pod.name);
    }
    one->Settle();
  }
  EXPECT_EQ(cluster.Look().newest_view, number);
  EXPECT_EQ(cluster["w0"].told.evaluate(), 2);
  EXPECT_EQ(cluster.Look().settled_step, 20);
  EXPECT_EQ(other["w1"].held, held);
  for (const Lease lease : held) EXPECT_FALSE(other["w0"].held.contains(lease));
}

TEST(ShardCoordinator, ASuccessorLearnsTheTablesFromServersWhereNoWorkerIsLeft) {
  Cluster cluster = Cluster::Running(1, 2);
  cluster.Work("w0");
  cluster.Settle();
  cluster.Kill("w0");
  cluster.Settle();
  cluster.PodOf("w0").state = PodState::kTerminated;
  cluster.NewCoordinator();
  for (const char* name : {"s0", "s1"}) {
    cluster.Connect(name);
    cluster.Obey(cluster[name]);
    cluster.Report(name);
  }
  cluster.Settle();
  EXPECT_NE(cluster.coordinator_->view(), nullptr);
  EXPECT_EQ(cluster.Look().settled_step, 0);
}

TEST(ShardCoordinator, AfterTheTakeoverTimeoutTheSilentCountAsEnded) {
  Cluster cluster = Cluster::Running(2, 2);
  cluster.processes_.erase("s1");
  cluster.NewCoordinator();
  for (const char* name : {"s0", "w0", "w1"}) {
    cluster.Connect(name);
    cluster.Obey(cluster[name]);
    cluster.Report(name);
  }
  cluster.Advance(absl::Seconds(1.5));
  EXPECT_EQ(cluster.coordinator_->view(), nullptr);
  cluster.Advance(absl::Seconds(1));
  ASSERT_NE(cluster.coordinator_->view(), nullptr);
  EXPECT_EQ(cluster.coordinator_->view()->servers().size(), 1U);
  EXPECT_EQ(cluster.Look().incidents[0].reason, "StepsAtRisk");
}

// The old coordinator has given s0 up and leads s1 alone; its successor has heard s0, and not s1.
TEST(ShardCoordinator, WhatAServerBringsThatWasGivenUpDoesNotCountBeforeTheOthersHaveSynced) {
  for (const bool rule : {true, false}) {
    Cluster cluster(1, 2);
    cluster.rules_.return_when_synced = rule;
    cluster.Start("s0");
    cluster.Start("w0");
    cluster.Settle();
    cluster.Advance(absl::Seconds(1.5));
    ASSERT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 1));
    for (const char* name : {"s0", "w0"}) {
      cluster[name].connected = false;
      cluster.coordinator_->OnDisconnected(cluster[name].id.pod_uid, cluster.now_);
    }
    cluster.Start("s1");
    cluster.Settle();
    cluster.Advance(absl::Seconds(40));
    ASSERT_TRUE(cluster["s1"].installed);
    ASSERT_EQ(cluster["s1"].installed->number, MakeViewNumber(1, 2));
    ASSERT_FALSE(cluster["s1"].installed->Has(cluster["s0"].id));

    cluster.NewCoordinator();
    for (const char* name : {"s0", "w0"}) {
      cluster.Connect(name);
      cluster.Obey(cluster[name]);
      cluster.Report(name);
    }
    cluster.Advance(absl::Seconds(31));
    ASSERT_NE(cluster.coordinator_->view(), nullptr);
    ASSERT_EQ(cluster.coordinator_->view()->number, MakeViewNumber(1, 1));
    cluster.Connect("s1");
    cluster.Obey(cluster["s1"]);
    cluster.Report("s1");
    EXPECT_EQ(cluster.coordinator_->view()->number, MakeViewNumber(2, 1));
    EXPECT_TRUE(cluster.coordinator_->view()->groups[0].Has(cluster["s0"].id));
    EXPECT_EQ(cluster.coordinator_->view()->groups[0].Has(cluster["s1"].id), !rule)
        << "its state, of view 1-2, is later than that of s0, of view 1-1";
    cluster.Settle();
    cluster.Advance(absl::Seconds(1));
    EXPECT_THAT(cluster.coordinator_->view()->servers(), SizeIs(2));
    EXPECT_THAT(cluster.coordinator_->assumed_terminated(), IsEmpty());
  }
}

TEST(ShardCoordinator, WhoIsJustStartingWhenASuccessorTakesOverPutsNothingAtRisk) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.AddPod("s", kServerRole, 1);
  cluster.AddPod("w", kWorkerRole, 2);
  cluster.desired_.servers = 2;
  cluster.desired_.workers = 3;
  cluster.NewCoordinator();
  for (const char* name : {"s0", "w0", "w1"}) {
    cluster.Connect(name);
    cluster.Obey(cluster[name]);
    cluster.Report(name);
  }
  cluster.Advance(absl::Seconds(2.5));
  ASSERT_NE(cluster.coordinator_->view(), nullptr) << "nobody waits for them";
  EXPECT_THAT(cluster.coordinator_->assumed_terminated(), SizeIs(2));
  EXPECT_THAT(cluster.Look().incidents, IsEmpty());

  cluster.Start("s1");
  cluster.Start("w2");
  cluster.Settle();
  cluster.Advance(absl::Minutes(1));
  EXPECT_THAT(cluster.coordinator_->view()->servers(), SizeIs(2));
  EXPECT_THAT(cluster.coordinator_->view()->workers(), SizeIs(3));
  EXPECT_THAT(cluster.Look().incidents, IsEmpty());
}

// Its first words come before it has heard of this coordinator: the one that ended does not speak.
TEST(ShardCoordinator, AServerWhoseProcessIsReplacedIsOneIncident) {
  Cluster cluster = Cluster::Running(1, 2);
  cluster.Work("w0");
  cluster.Settle();
  cluster.Kill("s0");
  membership::LastExit killed;
  killed.signal = 9;
  cluster.Start("s0", killed);
  cluster.Settle();
  cluster.Advance(absl::Seconds(0.3));
  ASSERT_THAT(cluster.Look().incidents, SizeIs(1));
  EXPECT_EQ(cluster.Look().incidents[0].reason, "ParameterServerLost");
  ASSERT_TRUE(cluster.Look().incidents[0].exit.has_value());
  EXPECT_EQ(cluster.Look().incidents[0].exit->signal, 9);
}

TEST(ShardCoordinator, WhoHearsOfAHigherIncarnationPublishesNoMore) {
  Cluster cluster = Cluster::Running(1, 1);
  cluster["w0"].incarnation = 7;
  cluster.Report("w0");
  EXPECT_TRUE(cluster.Look().superseded);
  EXPECT_TRUE(cluster.coordinator_->PodsToDial().empty());
}

TEST(ShardCoordinator, BothRolesAreDialledByTheirNames) {
  Cluster cluster(1, 1);
  const auto dial = cluster.coordinator_->PodsToDial();
  EXPECT_EQ(dial.at("uid-w0").role, "worker");
  EXPECT_EQ(dial.at("uid-s0").role, "parameter-server");
}

TEST(ShardCoordinator, ADrainingServerIsReleasedOnceTheOthersHoldItsShards) {
  Cluster cluster = Cluster::Running(1, 2);
  cluster.Work("w0");
  cluster.Settle();
  cluster.PodOf("s1").state = PodState::kDraining;
  cluster.desired_.servers = 1;
  cluster.Want();
  cluster.Settle();
  cluster.Advance(absl::Seconds(0.2));
  EXPECT_TRUE(cluster["s1"].released);
  EXPECT_TRUE(cluster.MemberOf("s1").drained);
  EXPECT_EQ(cluster.coordinator_->view()->servers().size(), 1U);
  EXPECT_THAT(cluster.Look().incidents, IsEmpty());
  EXPECT_FALSE(cluster["s0"].released);
}

TEST(ShardCoordinator, ALeavingWorkerFinishesWhatItHolds) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.Work("w0");
  cluster.Settle();
  ASSERT_THAT(cluster["w1"].held, Not(IsEmpty()));
  cluster["w1"].leaving = true;
  cluster.Settle();
  EXPECT_EQ(cluster.coordinator_->view()->workers().size(), 2U);
  EXPECT_FALSE(cluster["w1"].released);
  cluster.Work("w1");
  cluster.Settle();
  cluster.Advance(absl::Seconds(0.1));
  EXPECT_EQ(cluster.coordinator_->view()->workers().size(), 1U);
  EXPECT_TRUE(cluster["w1"].released);
  EXPECT_THAT(cluster["w1"].held, IsEmpty());
}

TEST(ShardCoordinator, ALeavingWorkerThatHangsIsWaitedForAWhileOnly) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.Work("w0");
  cluster.Settle();
  cluster["w1"].leaving = true;
  cluster.Settle();
  cluster.Advance(absl::Seconds(4.95));
  EXPECT_FALSE(cluster["w1"].released);
  cluster.Advance(absl::Seconds(0.05));
  EXPECT_TRUE(cluster["w1"].released);
}

// Suspension: nobody waits for a view that is never made, nor for the end of its grace.
TEST(ShardCoordinator, WhatIsHaltedAndSavedMayGoAtOnce) {
  Cluster cluster = Cluster::Running(2, 2);
  for (const char* name : {"w0", "w1"}) cluster.Work(name);
  cluster.Settle();
  cluster.desired_.settings.generation = 2;
  cluster.desired_.settings.halt = true;
  cluster.Want();
  cluster.Settle();
  for (const char* name : {"w0", "w1"}) cluster.Work(name);
  cluster.Settle();
  ASSERT_TRUE(cluster.Look().stopped);
  EXPECT_FALSE(cluster["s0"].released) << "nobody has asked it to go";
  for (const char* name : {"s0", "s1", "w0", "w1"}) {
    cluster.PodOf(name).state = PodState::kDraining;
  }
  cluster.Want();
  cluster.Settle();
  for (const char* name : {"s0", "s1", "w0", "w1"}) EXPECT_TRUE(cluster[name].released) << name;
}

TEST(ShardCoordinator, WhenAllServersAreAskedToGoTheySaveFirst) {
  Cluster cluster = Cluster::Running(1, 2);
  cluster.Work("w0");
  cluster.Settle();
  cluster.muted_ = {"s1"};
  for (const char* name : {"s0", "s1"}) cluster.PodOf(name).state = PodState::kDraining;
  cluster.Want();
  cluster.Settle();
  EXPECT_FALSE(cluster["s0"].released);
  cluster.muted_.clear();
  cluster.Settle();
  EXPECT_TRUE(cluster["s0"].released);
  EXPECT_TRUE(cluster["s1"].released);
  EXPECT_GT(cluster["s1"].checkpoint_turn, 0);
}

TEST(ShardCoordinator, AtTheSecondFailureByBlameAloneTheMostBlamedStaysOutForAWhile) {
  Cluster cluster = Cluster::Running(3, 2);
  const auto fail = [&] {
    const MemberId bad = cluster["w2"].id;
    for (auto& [name, process] : cluster.processes_) {
      process.broken = true;
      if (process.server) process.unreachable = {bad};
    }
    for (auto& [name, process] : cluster.processes_) cluster.Report(name);
    cluster.Settle();
  };
  fail();
  EXPECT_EQ(cluster.coordinator_->view()->workers().size(), 3U);
  fail();
  EXPECT_EQ(cluster.coordinator_->view()->workers().size(), 2U);
  EXPECT_EQ(cluster.Look().incidents.back().reason, "WorkerUnreachable");
  EXPECT_EQ(cluster.Look().incidents.back().pod, "w2");
  cluster.Advance(absl::Seconds(6));
  EXPECT_EQ(cluster.coordinator_->view()->workers().size(), 3U);
}

TEST(ShardCoordinator, NobodyIsEvictedWithoutWhomAShardWouldBeLost) {
  Cluster cluster = Cluster::Running(1, 1);
  for (int i = 0; i < 3; ++i) {
    const MemberId bad = cluster["s0"].id;
    for (auto& [name, process] : cluster.processes_) process.broken = true;
    cluster["w0"].unreachable = {bad};
    for (auto& [name, process] : cluster.processes_) cluster.Report(name);
    cluster.Settle();
  }
  EXPECT_THAT(cluster.coordinator_->view()->servers(), SizeIs(1));
  EXPECT_THAT(cluster.coordinator_->view()->workers(), SizeIs(1));
}

TEST(ShardCoordinator, WhenTheControllerHasTheResultEverybodyIsTold) {
  Cluster cluster = Cluster::Running(1, 1);
  cluster.desired_.finished = true;
  cluster.Want();
  EXPECT_TRUE(cluster.coordinator_->finished());
  EXPECT_TRUE(cluster.coordinator_->DirectiveFor("uid-s0").finished);
  EXPECT_FALSE(cluster.coordinator_->AllGone());
  cluster.Kill("s0");
  cluster.Kill("w0");
  EXPECT_TRUE(cluster.coordinator_->AllGone());
}

}  // namespace
}  // namespace starling::parameter_server
