// SPDX-License-Identifier: Apache-2.0
// Batches, turns, checkpoints, halting, the end.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/parameter_server/shard_coordinator.h"
#include "trainer/testing/shard_cluster.h"

namespace starling::parameter_server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ShardCoordinator, TheFirstValuesAreOneClientsAlone) {
  Cluster cluster = Cluster::Running(3, 2);
  EXPECT_THAT(cluster["w0"].held, ElementsAre(kFirstValues));
  EXPECT_THAT(cluster["w1"].held, IsEmpty());
  EXPECT_THAT(cluster["w2"].held, IsEmpty());
  EXPECT_EQ(cluster.Look().settled_step, 0);
  cluster.Work("w0");
  cluster.Settle();
  for (const char* name : {"w0", "w1", "w2"}) {
    EXPECT_THAT(cluster[name].held, Not(IsEmpty())) << name;
  }
}

TEST(ShardCoordinator, EveryBatchIsDoneOnceEveryTurnIsMadeAndOneClientConcludes) {
  Cluster cluster = Cluster::Running(3, 2);
  std::vector<std::int64_t> turns;
  for (int round = 0; round < 10 && !cluster["w0"].told.conclude(); ++round) {
    cluster.WorkAll();
    if (cluster["w0"].told.evaluate() == 0) {
      cluster.Advance(absl::Seconds(0.1));
      continue;
    }
    turns.push_back(cluster["w0"].told.evaluate());
    EXPECT_EQ(cluster["w1"].told.evaluate(), 0);
    cluster.Validate("w0");
  }
  EXPECT_THAT(turns, ElementsAre(1, 2));
  EXPECT_EQ(cluster.order_.size(), 21U);
  EXPECT_EQ(cluster.repeated_, 0);
  EXPECT_EQ(cluster.Look().settled_step, 20);
  EXPECT_TRUE(cluster["w0"].told.conclude());
  EXPECT_FALSE(cluster["w1"].told.conclude());
  cluster["w0"].training = {"", true, ""};
  cluster.Settle();
  EXPECT_TRUE(cluster.Look().training.has_result || cluster["w0"].training.bytes.empty());
}

TEST(ShardCoordinator, WorkersAreToldWhatIsSettled) {
  Cluster cluster = Cluster::Running(1, 1);
  cluster.Work("w0");
  cluster.Settle();
  cluster.Work("w0", 2);
  cluster.Advance(absl::Seconds(0.1));
  EXPECT_EQ(cluster["w0"].told.settled(), 2);
}

TEST(ShardCoordinator, InStepTheNextEpochBeginsAfterTheValidation) {
  for (const bool in_step : {true, false}) {
    pb::TrainingJobSpec spec = Spec();
    if (in_step) {
      spec.mutable_dataset()->set_global_batch_size(4);
      spec.mutable_exchange()
          ->mutable_parameter_server()
          ->mutable_consistency()
          ->mutable_bulk_synchronous();
    }
    Cluster cluster = Cluster::Running(2, 1, spec);
    cluster.WorkAll();
    EXPECT_EQ(cluster["w0"].told.evaluate(), 1);
    EXPECT_EQ(cluster.order_.size(), in_step ? 11U : 21U);
    cluster.Validate("w0");
    cluster.WorkAll();
    EXPECT_EQ(cluster.order_.size(), 21U);
    EXPECT_EQ(cluster["w0"].told.evaluate(), 2);
  }
}

// Batches of 4 samples, in as many portions.
pb::TrainingJobSpec InPortions() {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_dataset()->set_global_batch_size(4);
  spec.mutable_exchange()->mutable_parameter_server()->set_samples_per_push(1);
  spec.mutable_exchange()
      ->mutable_parameter_server()
      ->mutable_consistency()
      ->mutable_bulk_synchronous();
  return spec;
}

TEST(ShardCoordinator, ABatchIsSharedByAllAndItsPortionsAreNeighbours) {
  Cluster cluster = Cluster::Running(2, 1, InPortions());
  EXPECT_THAT(cluster["w0"].held, ElementsAre(kFirstValues));
  cluster.Work("w0");
  cluster.Settle();
  EXPECT_THAT(cluster["w0"].held, ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(cluster["w1"].held, ElementsAre(4, 5, 8, 9));
  cluster.Work("w0", 2);
  cluster.Advance(absl::Seconds(0.1));
  EXPECT_EQ(cluster.Look().settled_step, 0) << "half of a batch is no step";
  cluster.Work("w1", 2);
  cluster.Advance(absl::Seconds(0.1));
  EXPECT_EQ(cluster.Look().settled_step, 1);
  EXPECT_EQ(cluster["w0"].told.settled(), 1);

  cluster.WorkAll();
  EXPECT_EQ(cluster.order_.size(), 1U + 10 * 4) << "an epoch";
  EXPECT_EQ(cluster["w0"].told.evaluate(), 1);
  cluster.Validate("w0");
  cluster.WorkAll();
  EXPECT_EQ(cluster.Look().settled_step, 20);
  EXPECT_EQ(cluster.repeated_, 0);
}

TEST(ShardCoordinator, WhoComesSharesTheNextBatchesAndADeadWorkersPortionsAreDoneByOthers) {
  Cluster cluster = Cluster::Running(2, 1, InPortions());
  cluster.Work("w0");
  cluster.Settle();
  const auto dead = cluster["w1"].held;
  cluster.Kill("w1");
  cluster.Advance(absl::Seconds(3));
  for (const Lease lease : dead) EXPECT_THAT(cluster["w0"].held, Contains(lease));
  cluster.Start("w1");
  cluster.Advance(absl::Seconds(1));
  while (cluster["w1"].held.empty() && cluster.Work("w0", 4) > 0)
    cluster.Advance(absl::Seconds(0.1));
  EXPECT_THAT(cluster["w1"].held, Not(IsEmpty()));
  EXPECT_EQ(cluster.repeated_, 0);
}

// Who holds a portion of the second batch waits for the whole first one.
TEST(ShardCoordinator, AHaltedJobEndsTheBatchesThatAreBegun) {
  Cluster cluster = Cluster::Running(2, 1, InPortions());
  cluster.Work("w0");
  cluster.Settle();
  cluster.desired_.settings.halt = true;
  cluster.desired_.settings.generation = 1;
  cluster.Want();
  cluster.Work("w0", 2);
  cluster.Kill("w1");
  cluster.Advance(absl::Seconds(3));
  EXPECT_THAT(cluster["w0"].held, ElementsAre(4, 5, 6, 7, 8, 9));
  cluster.WorkAll();
  EXPECT_EQ(cluster.Look().settled_step, 2) << "and none is begun";
  EXPECT_EQ(cluster.order_.size(), 9U);
}

TEST(ShardCoordinator, APortionThatIsGivenBackIsAnothers) {
  Cluster cluster = Cluster::Running(2, 1, InPortions());
  cluster.Work("w0");
  cluster.Settle();
  const Lease lease = cluster.Return("w0");
  cluster.Settle();
  EXPECT_THAT(cluster["w1"].held, Contains(lease));
  cluster.WorkAll();
  EXPECT_EQ(cluster.repeated_, 0);
}

TEST(ShardCoordinator, AValidationWhoseMakerDiesIsAskedOfAnother) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.WorkAll();
  EXPECT_EQ(cluster["w0"].told.evaluate(), 1);
  cluster.Kill("w0");
  cluster.Settle();
  EXPECT_EQ(cluster["w1"].told.evaluate(), 1);
}

TEST(ShardCoordinator, ATurnThatEndsTrainingTakesTheWorkAwayAndConcludes) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.WorkAll();
  cluster.Validate("w0");
  EXPECT_FALSE(cluster["w0"].told.conclude());
  EXPECT_EQ(cluster["w0"].told.evaluate(), 2);
  cluster.Validate("w0", /*ends_training=*/true);
  EXPECT_TRUE(cluster["w0"].told.conclude());
}

TEST(ShardCoordinator, NearTheEndNobodyHoldsMoreThanHalfOfItsShare) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.Work("w0");
  cluster.Settle();
  std::size_t left = 20;
  while (left > 0) {
    const std::size_t most = std::max<std::size_t>(1, (left + 3) / 4);
    for (const char* name : {"w0", "w1"}) {
      EXPECT_LE(cluster[name].held.size(), std::max<std::size_t>(2, most));
      if (left <= 4) {
        EXPECT_LE(cluster[name].held.size(), 1U);
      }
    }
    left -= cluster.Work("w0", 1) + cluster.Work("w1", 1);
    cluster.Settle();
    if (cluster["w0"].told.evaluate() == 1) cluster.Validate("w0");
  }
}

TEST(ShardCoordinator, AFastClientIsGivenMoreAhead) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_stop()->set_epochs(1000);
  Cluster cluster = Cluster::Running(2, 1, spec);
  cluster.Work("w0");
  cluster.Settle();
  cluster["w0"].turn = 999;
  for (int i = 0; i < 50; ++i) {
    cluster.now_ += absl::Milliseconds(10);
    cluster.Work("w0");
    if (i % 20 == 0) cluster.Work("w1", 1);
    cluster.Settle();
  }
  EXPECT_GT(cluster["w0"].held.size(), 10U);
  EXPECT_LE(cluster["w1"].held.size(), 3U);
}

TEST(ShardCoordinator, ADeadWorkersBatchesAreGivenToAnother) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.Work("w0");
  cluster.Settle();
  const Lease lost = *cluster["w1"].held.begin();
  cluster.Kill("w1");
  cluster.Settle();
  EXPECT_EQ(cluster.Look().incidents[0].reason, "WorkerLost");
  EXPECT_FALSE(cluster.Look().incidents[0].recovery);
  cluster.Work("w0");
  cluster.Settle();
  cluster.WorkAll();
  EXPECT_THAT(cluster.order_, testing::Contains(lost));
  EXPECT_TRUE(cluster.Look().incidents[0].recovery);
  EXPECT_THAT(cluster.Look().incidents[0].message,
              HasSubstr("1 worker and 1 parameter server go on"));
}

TEST(ShardCoordinator, ALeaseThatIsGivenBackIsAnothersAsSoonAsItHasRoom) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.Work("w0");
  cluster.Settle();
  const Lease lease = cluster.Return("w0");
  cluster.Settle();
  EXPECT_THAT(cluster["w0"].told.leases(), Not(Contains(lease)));
  EXPECT_THAT(cluster["w1"].held, Not(Contains(lease))) << "it has enough";
  cluster.Work("w1", 1);
  cluster.Settle();
  EXPECT_THAT(cluster["w0"].held, Not(Contains(lease)));
  EXPECT_THAT(cluster["w1"].held, Contains(lease));
  cluster.WorkAll();
  EXPECT_EQ(cluster.repeated_, 0);
  EXPECT_EQ(cluster["w0"].told.evaluate(), 1) << "nothing is missing";
}

TEST(ShardCoordinator, ALeaseForWhichNobodyElseHasRoomIsItsWorkersAgain) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.Work("w0");
  cluster.Settle();
  const Lease lease = cluster.Return("w0");
  cluster.Settle();
  EXPECT_THAT(cluster["w0"].told.leases(), Not(Contains(lease)));
  cluster.Advance(absl::Seconds(0.5));
  EXPECT_THAT(cluster["w0"].told.leases(), Not(Contains(lease)));
  cluster.Advance(absl::Seconds(1));
  cluster.Work("w0", 1);
  cluster.Settle();
  EXPECT_THAT(cluster["w0"].told.leases(), Contains(lease)) << "the other stands still";
}

TEST(ShardCoordinator, WhoIsAloneGetsWhatItGaveBack) {
  Cluster cluster = Cluster::Running(1, 1);
  cluster.Work("w0");
  cluster.Settle();
  const Lease lease = cluster.Return("w0");
  cluster.Settle();
  EXPECT_THAT(cluster["w0"].told.leases(), Contains(lease));
}

// Not to be heard of is not to give back.
TEST(ShardCoordinator, ALeaseOfWhichAClientHasNotHeardStaysItsOwn) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.muted_ = {"w1"};
  cluster.Work("w0");
  cluster.Settle();
  const membership::Directive unheard = cluster.coordinator_->DirectiveFor("uid-w1");
  pb::ParameterServerDirective part;
  ASSERT_TRUE(part.ParseFromString(unheard.parameter_server));
  ASSERT_GT(part.leases_size(), 0);
  cluster.muted_.clear();
  cluster.Report("w1");
  cluster.Report("w1");
  EXPECT_EQ(cluster.coordinator_->DirectiveFor("uid-w1").parameter_server,
            unheard.parameter_server);
}

TEST(ShardCoordinator, AServersDeathCostsNothingWhereAnotherHasItsShards) {
  Cluster cluster = Cluster::Running(2, 2);
  cluster.Work("w0");
  cluster.Settle();
  cluster.WorkAll();
  const std::size_t done = cluster.order_.size();
  cluster.Kill("s1");
  cluster.Settle();
  EXPECT_EQ(cluster.Look().incidents[0].reason, "ParameterServerLost");
  EXPECT_EQ(cluster.coordinator_->view()->servers().size(), 1U);
  EXPECT_EQ(cluster.Look().settled_step, static_cast<std::int64_t>(done) - 1);
  cluster.Start("s1", membership::LastExit{0, 9, "", 5});
  cluster.Settle();
  cluster.Advance(absl::Seconds(0.2));
  EXPECT_EQ(cluster.coordinator_->view()->groups[0].members.size(), 2U);
  EXPECT_EQ(cluster.Look().incidents[0].exit->signal, 9);
  EXPECT_EQ(cluster.repeated_, 0);
}

TEST(ShardCoordinator, WhatARestoreLosesIsDoneAgainAndTold) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.Work("w0");
  cluster.Settle();
  for (Lease lease = 1; lease <= 4; ++lease) cluster.saved_.Add(lease);
  for (int i = 0; i < 4; ++i) {
    cluster.Work("w0", 1);
    cluster.Work("w1", 1);
    cluster.Settle();
  }
  EXPECT_EQ(cluster.Look().settled_step, 8);
  const ViewNumber joined = cluster["w0"].joined();
  cluster.Kill("s0");
  cluster.Settle();
  cluster.Start("s0");
  cluster.Settle();
  EXPECT_TRUE(cluster.coordinator_->view()->groups[0].restore);
  EXPECT_GT(cluster["w0"].joined(), joined);
  EXPECT_EQ(cluster.Look().settled_step, 3);
  EXPECT_EQ(cluster.Look().incidents[0].repeated_steps, 5);
  EXPECT_THAT(cluster.Look().incidents[0].message, HasSubstr("5 batches are done again"));
  cluster.WorkAll();
  EXPECT_EQ(cluster.Look().settled_step, 20);
}

TEST(ShardCoordinator, ARestoreFromNothingBeginsWithTheFirstValues) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster.Work("w0");
  cluster.Settle();
  cluster.Work("w1");
  cluster.Settle();
  cluster.Kill("s0");
  cluster.Start("s0");
  cluster.Settle();
  EXPECT_THAT(cluster["w0"].held, ElementsAre(kFirstValues));
  EXPECT_THAT(cluster["w1"].held, IsEmpty());
}

TEST(ShardCoordinator, AHaltIsReportedOnceWorkIsDoneAndEveryServerHasSaved) {
  Cluster cluster = Cluster::Running(2, 2);
  cluster.Work("w0");
  cluster.Settle();
  cluster.desired_.settings.generation = 2;
  cluster.desired_.settings.halt = true;
  cluster.Want();
  cluster.muted_ = {"s1"};  // it is slow to save
  cluster.Settle();
  EXPECT_FALSE(cluster.Look().stopped) << "leases are outstanding";
  cluster.Work("w0");
  cluster.Work("w1");
  cluster.Settle();
  EXPECT_THAT(cluster["w0"].held, IsEmpty());
  EXPECT_FALSE(cluster.Look().stopped) << "s1 has not saved";
  cluster.muted_.clear();
  cluster.Settle();
  EXPECT_TRUE(cluster.Look().stopped);
  cluster.Kill("s0");
  cluster.Settle();
  EXPECT_TRUE(cluster.Look().stopped) << "its pods are being taken away";

  cluster.Start("s0");
  cluster.desired_.settings.halt = false;
  cluster.desired_.settings.generation = 3;
  cluster.Want();
  cluster.Settle();
  EXPECT_FALSE(cluster.Look().stopped);
  EXPECT_THAT(cluster["w0"].held, Not(IsEmpty()));
}

TEST(ShardCoordinator, CheckpointTurnsComeWithTheIntervalWhileBatchesAreDone) {
  Cluster cluster = Cluster::Running(1, 1);
  cluster.Work("w0");
  cluster.Settle();
  cluster.desired_.checkpoint_interval_ms = 1000;
  cluster.Want();
  cluster.Work("w0");
  cluster.Advance(absl::Seconds(0.5));
  EXPECT_EQ(cluster["s0"].checkpoint_turn, 0);
  cluster.Advance(absl::Seconds(1));
  const std::int64_t turn = cluster["s0"].checkpoint_turn;
  EXPECT_GT(turn, 0);
  cluster.Advance(absl::Seconds(5));
  EXPECT_EQ(cluster["s0"].checkpoint_turn, turn) << "no batch was done since";
  pb::TrainingReport saved;
  saved.mutable_checkpoint()->set_uri("file:///x");
  cluster["s0"].training.bytes = saved.SerializeAsString();
  cluster.Settle();
  pb::TrainingReport shown;
  ASSERT_TRUE(shown.ParseFromString(cluster.Look().training.bytes));
  EXPECT_EQ(shown.checkpoint().uri(), "file:///x");
  EXPECT_EQ(shown.checkpoint().step(), 2);
}

TEST(ShardCoordinator, ARequestedCheckpointIsAnsweredOnceEveryServerHasWrittenIt) {
  Cluster cluster = Cluster::Running(1, 1);
  cluster.Work("w0");
  cluster.Settle();
  EXPECT_EQ(cluster["s0"].checkpoint_turn, 0);
  cluster.desired_.checkpoint_request = "now";
  cluster.Want();
  cluster.Work("w0");
  cluster.Advance(absl::Seconds(1));
  const std::int64_t turn = cluster["s0"].checkpoint_turn;
  EXPECT_GT(turn, 0) << "without an interval, too";
  EXPECT_EQ(cluster.Look().checkpoint_request, "now");
  EXPECT_GT(cluster.Look().checkpoint_request_step, 0);
  cluster.Work("w0");
  cluster.Advance(absl::Seconds(1));
  EXPECT_EQ(cluster["s0"].checkpoint_turn, turn) << "it is carried out once";
}

TEST(ShardCoordinator, ALayoutThatFitsNoTablesFailsTheJobWithTheReason) {
  Cluster cluster = Cluster::Running(1, 1);
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_exchange()->mutable_parameter_server()->set_shards(5000);
  ShardCoordinator coordinator({}, spec);
  coordinator.OnGrant({1, "", cluster.pods_, 0}, cluster.now_);
  coordinator.OnDesired(cluster.desired_, cluster.now_);
  coordinator.OnConnected("uid-w0", cluster.now_);
  Process worker;
  worker.id = {"uid-w0", 0};
  worker.incarnation = 1;
  membership::Report report = cluster.ReportOf(worker);
  pb::ParameterServerReport said;
  Put(Layout{1LL << 40, kSamples, "f"}, *said.mutable_layout());
  report.parameter_server = said.SerializeAsString();
  coordinator.OnReport("uid-w0", report, cluster.now_);
  EXPECT_THAT(coordinator.MakeSummary(cluster.now_).training.failure, HasSubstr("shards: 5000"));
}

TEST(ShardCoordinator, AFailureOfAnyMemberIsTheJobs) {
  Cluster cluster = Cluster::Running(2, 1);
  cluster["w1"].training = {"", false, "the loss is not a number"};
  cluster.Settle();
  EXPECT_EQ(cluster.Look().training.failure, "the loss is not a number");
}

TEST(ShardCoordinator, StoppingEarlierActsWhileItRuns) {
  Cluster cluster = Cluster::Running(1, 1);
  cluster.Work("w0");
  cluster.Settle();
  pb::Settings settings;
  settings.set_generation(2);
  settings.mutable_stop()->set_steps(7);
  cluster.desired_.settings.generation = 2;
  cluster.desired_.settings.values = settings.SerializeAsString();
  cluster.Want();
  cluster.Settle();
  cluster.WorkAll();
  EXPECT_EQ(cluster.Look().settled_step, 7);
  EXPECT_EQ(cluster["w0"].told.evaluate(), 1);
  cluster.Validate("w0");
  EXPECT_TRUE(cluster["w0"].told.conclude());
}

TEST(WorkPlan, TurnsFollowEpochsAndTheEnd) {
  WorkPlan plan{.per_epoch = 10, .total = 35, .every = 2, .ahead = 1, .warm_start = 0};
  EXPECT_EQ(plan.TurnAfter(0), 2);
  EXPECT_EQ(plan.TurnAfter(2), 4);
  EXPECT_EQ(plan.TurnAfter(4), 0);
  EXPECT_EQ(plan.BatchesBefore(4), 35);
  EXPECT_EQ(plan.TurnDue(0, 19), 0);
  EXPECT_EQ(plan.TurnDue(0, 20), 2);
  EXPECT_EQ(plan.TurnDue(2, 35), 4);
  EXPECT_EQ(plan.Limit(0), 35);
  plan.ahead = 0;
  EXPECT_EQ(plan.Limit(0), 20);
  EXPECT_FALSE(plan.Over(2, 35));
  EXPECT_TRUE(plan.Over(4, 35));
  plan.every = 0;
  EXPECT_EQ(plan.TurnDue(0, 35), 0);
  EXPECT_EQ(plan.Limit(0), 35);
  EXPECT_TRUE(plan.Over(0, 35));
}

TEST(WorkPlan, WithoutAnEndNothingOverflows) {
  pb::TrainingJobSpec spec = Spec();
  spec.clear_stop();
  const WorkPlan plan = WorkOf(spec, spec.stop(), kSamples);
  EXPECT_EQ(plan.per_epoch, 10);
  EXPECT_EQ(plan.Limit(1'000'000), 10'000'020);
  EXPECT_FALSE(plan.Over(1'000'000, 1'000'000'000));
}

}  // namespace
}  // namespace starling::parameter_server
