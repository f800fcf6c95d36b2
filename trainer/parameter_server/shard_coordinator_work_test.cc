// SPDX-License-Identifier: Apache-2.0
// Batches, turns, checkpoints, halting, the end.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/parameter_server/shard_coordinator.h"
#include "trainer/testing/shard_fleet.h"

namespace starling::parameter_server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ShardCoordinator, TheFirstValuesAreOneClientsAlone) {
  Fleet fleet = Fleet::Running(3, 2);
  EXPECT_THAT(fleet["w0"].held, ElementsAre(kFirstValues));
  EXPECT_THAT(fleet["w1"].held, IsEmpty());
  EXPECT_THAT(fleet["w2"].held, IsEmpty());
  EXPECT_EQ(fleet.Look().settled_step, 0);
  fleet.Work("w0");
  fleet.Settle();
  for (const char* name : {"w0", "w1", "w2"}) {
    EXPECT_THAT(fleet[name].held, Not(IsEmpty())) << name;
  }
}

TEST(ShardCoordinator, EveryBatchIsDoneOnceEveryTurnIsMadeAndOneClientConcludes) {
  Fleet fleet = Fleet::Running(3, 2);
  std::vector<std::int64_t> turns;
  for (int round = 0; round < 10 && !fleet["w0"].told.conclude(); ++round) {
    fleet.WorkAll();
    if (fleet["w0"].told.evaluate() == 0) {
      fleet.Advance(absl::Seconds(0.1));
      continue;
    }
    turns.push_back(fleet["w0"].told.evaluate());
    EXPECT_EQ(fleet["w1"].told.evaluate(), 0);
    fleet.Validate("w0");
  }
  EXPECT_THAT(turns, ElementsAre(1, 2));
  EXPECT_EQ(fleet.order_.size(), 21U);
  EXPECT_EQ(fleet.repeated_, 0);
  EXPECT_EQ(fleet.Look().settled_step, 20);
  EXPECT_TRUE(fleet["w0"].told.conclude());
  EXPECT_FALSE(fleet["w1"].told.conclude());
  fleet["w0"].training = {"", true, ""};
  fleet.Settle();
  EXPECT_TRUE(fleet.Look().training.has_result || fleet["w0"].training.bytes.empty());
}

TEST(ShardCoordinator, WorkersAreToldWhatIsSettled) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.Work("w0");
  fleet.Settle();
  fleet.Work("w0", 2);
  fleet.Advance(absl::Seconds(0.1));
  EXPECT_EQ(fleet["w0"].told.settled(), 2);
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
    Fleet fleet = Fleet::Running(2, 1, spec);
    fleet.WorkAll();
    EXPECT_EQ(fleet["w0"].told.evaluate(), 1);
    EXPECT_EQ(fleet.order_.size(), in_step ? 11U : 21U);
    fleet.Validate("w0");
    fleet.WorkAll();
    EXPECT_EQ(fleet.order_.size(), 21U);
    EXPECT_EQ(fleet["w0"].told.evaluate(), 2);
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
  Fleet fleet = Fleet::Running(2, 1, InPortions());
  EXPECT_THAT(fleet["w0"].held, ElementsAre(kFirstValues));
  fleet.Work("w0");
  fleet.Settle();
  EXPECT_THAT(fleet["w0"].held, ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(fleet["w1"].held, ElementsAre(4, 5, 8, 9));
  fleet.Work("w0", 2);
  fleet.Advance(absl::Seconds(0.1));
  EXPECT_EQ(fleet.Look().settled_step, 0) << "half of a batch is no step";
  fleet.Work("w1", 2);
  fleet.Advance(absl::Seconds(0.1));
  EXPECT_EQ(fleet.Look().settled_step, 1);
  EXPECT_EQ(fleet["w0"].told.settled(), 1);

  fleet.WorkAll();
  EXPECT_EQ(fleet.order_.size(), 1U + 10 * 4) << "an epoch";
  EXPECT_EQ(fleet["w0"].told.evaluate(), 1);
  fleet.Validate("w0");
  fleet.WorkAll();
  EXPECT_EQ(fleet.Look().settled_step, 20);
  EXPECT_EQ(fleet.repeated_, 0);
}

TEST(ShardCoordinator, WhoComesSharesTheNextBatchesAndADeadWorkersPortionsAreDoneByOthers) {
  Fleet fleet = Fleet::Running(2, 1, InPortions());
  fleet.Work("w0");
  fleet.Settle();
  const auto dead = fleet["w1"].held;
  fleet.Kill("w1");
  fleet.Advance(absl::Seconds(3));
  for (const Lease lease : dead) EXPECT_THAT(fleet["w0"].held, Contains(lease));
  fleet.Start("w1");
  fleet.Advance(absl::Seconds(1));
  while (fleet["w1"].held.empty() && fleet.Work("w0", 4) > 0) fleet.Advance(absl::Seconds(0.1));
  EXPECT_THAT(fleet["w1"].held, Not(IsEmpty()));
  EXPECT_EQ(fleet.repeated_, 0);
}

// Who holds a portion of the second batch waits for the whole first one.
TEST(ShardCoordinator, AHaltedJobEndsTheBatchesThatAreBegun) {
  Fleet fleet = Fleet::Running(2, 1, InPortions());
  fleet.Work("w0");
  fleet.Settle();
  fleet.desired_.settings.halt = true;
  fleet.desired_.settings.generation = 1;
  fleet.Want();
  fleet.Work("w0", 2);
  fleet.Kill("w1");
  fleet.Advance(absl::Seconds(3));
  EXPECT_THAT(fleet["w0"].held, ElementsAre(4, 5, 6, 7, 8, 9));
  fleet.WorkAll();
  EXPECT_EQ(fleet.Look().settled_step, 2) << "and none is begun";
  EXPECT_EQ(fleet.order_.size(), 9U);
}

TEST(ShardCoordinator, APortionThatIsGivenBackIsAnothers) {
  Fleet fleet = Fleet::Running(2, 1, InPortions());
  fleet.Work("w0");
  fleet.Settle();
  const Lease lease = fleet.Return("w0");
  fleet.Settle();
  EXPECT_THAT(fleet["w1"].held, Contains(lease));
  fleet.WorkAll();
  EXPECT_EQ(fleet.repeated_, 0);
}

TEST(ShardCoordinator, AValidationWhoseMakerDiesIsAskedOfAnother) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.WorkAll();
  EXPECT_EQ(fleet["w0"].told.evaluate(), 1);
  fleet.Kill("w0");
  fleet.Settle();
  EXPECT_EQ(fleet["w1"].told.evaluate(), 1);
}

TEST(ShardCoordinator, ATurnThatEndsTrainingTakesTheWorkAwayAndConcludes) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.WorkAll();
  fleet.Validate("w0");
  EXPECT_FALSE(fleet["w0"].told.conclude());
  EXPECT_EQ(fleet["w0"].told.evaluate(), 2);
  fleet.Validate("w0", /*ends_training=*/true);
  EXPECT_TRUE(fleet["w0"].told.conclude());
}

TEST(ShardCoordinator, NearTheEndNobodyHoldsMoreThanHalfOfItsShare) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  std::size_t left = 20;
  while (left > 0) {
    const std::size_t most = std::max<std::size_t>(1, (left + 3) / 4);
    for (const char* name : {"w0", "w1"}) {
      EXPECT_LE(fleet[name].held.size(), std::max<std::size_t>(2, most));
      if (left <= 4) {
        EXPECT_LE(fleet[name].held.size(), 1U);
      }
    }
    left -= fleet.Work("w0", 1) + fleet.Work("w1", 1);
    fleet.Settle();
    if (fleet["w0"].told.evaluate() == 1) fleet.Validate("w0");
  }
}

TEST(ShardCoordinator, AFastClientIsGivenMoreAhead) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_stop()->set_epochs(1000);
  Fleet fleet = Fleet::Running(2, 1, spec);
  fleet.Work("w0");
  fleet.Settle();
  fleet["w0"].turn = 999;
  for (int i = 0; i < 50; ++i) {
    fleet.now_ += absl::Milliseconds(10);
    fleet.Work("w0");
    if (i % 20 == 0) fleet.Work("w1", 1);
    fleet.Settle();
  }
  EXPECT_GT(fleet["w0"].held.size(), 10U);
  EXPECT_LE(fleet["w1"].held.size(), 3U);
}

TEST(ShardCoordinator, ADeadWorkersBatchesAreGivenToAnother) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  const Lease lost = *fleet["w1"].held.begin();
  fleet.Kill("w1");
  fleet.Settle();
  EXPECT_EQ(fleet.Look().incidents[0].reason, "WorkerLost");
  EXPECT_FALSE(fleet.Look().incidents[0].recovery);
  fleet.Work("w0");
  fleet.Settle();
  fleet.WorkAll();
  EXPECT_THAT(fleet.order_, testing::Contains(lost));
  EXPECT_TRUE(fleet.Look().incidents[0].recovery);
  EXPECT_THAT(fleet.Look().incidents[0].message,
              HasSubstr("1 worker and 1 parameter server go on"));
}

TEST(ShardCoordinator, ALeaseThatIsGivenBackIsAnothersAsSoonAsItHasRoom) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  const Lease lease = fleet.Return("w0");
  fleet.Settle();
  EXPECT_THAT(fleet["w0"].told.leases(), Not(Contains(lease)));
  EXPECT_THAT(fleet["w1"].held, Not(Contains(lease))) << "it has enough";
  fleet.Work("w1", 1);
  fleet.Settle();
  EXPECT_THAT(fleet["w0"].held, Not(Contains(lease)));
  EXPECT_THAT(fleet["w1"].held, Contains(lease));
  fleet.WorkAll();
  EXPECT_EQ(fleet.repeated_, 0);
  EXPECT_EQ(fleet["w0"].told.evaluate(), 1) << "nothing is missing";
}

TEST(ShardCoordinator, ALeaseForWhichNobodyElseHasRoomIsItsWorkersAgain) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  const Lease lease = fleet.Return("w0");
  fleet.Settle();
  EXPECT_THAT(fleet["w0"].told.leases(), Not(Contains(lease)));
  fleet.Advance(absl::Seconds(0.5));
  EXPECT_THAT(fleet["w0"].told.leases(), Not(Contains(lease)));
  fleet.Advance(absl::Seconds(1));
  fleet.Work("w0", 1);
  fleet.Settle();
  EXPECT_THAT(fleet["w0"].told.leases(), Contains(lease)) << "the other stands still";
}

TEST(ShardCoordinator, WhoIsAloneGetsWhatItGaveBack) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.Work("w0");
  fleet.Settle();
  const Lease lease = fleet.Return("w0");
  fleet.Settle();
  EXPECT_THAT(fleet["w0"].told.leases(), Contains(lease));
}

// Not to be heard of is not to give back.
TEST(ShardCoordinator, ALeaseOfWhichAClientHasNotHeardStaysItsOwn) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.muted_ = {"w1"};
  fleet.Work("w0");
  fleet.Settle();
  const membership::Directive unheard = fleet.coordinator_->DirectiveFor("uid-w1");
  pb::ParameterServerDirective part;
  ASSERT_TRUE(part.ParseFromString(unheard.parameter_server));
  ASSERT_GT(part.leases_size(), 0);
  fleet.muted_.clear();
  fleet.Report("w1");
  fleet.Report("w1");
  EXPECT_EQ(fleet.coordinator_->DirectiveFor("uid-w1").parameter_server, unheard.parameter_server);
}

TEST(ShardCoordinator, AServersDeathCostsNothingWhereAnotherHasItsShards) {
  Fleet fleet = Fleet::Running(2, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.WorkAll();
  const std::size_t done = fleet.order_.size();
  fleet.Kill("s1");
  fleet.Settle();
  EXPECT_EQ(fleet.Look().incidents[0].reason, "ParameterServerLost");
  EXPECT_EQ(fleet.coordinator_->view()->servers().size(), 1U);
  EXPECT_EQ(fleet.Look().settled_step, static_cast<std::int64_t>(done) - 1);
  fleet.Start("s1", membership::LastExit{0, 9, "", 5});
  fleet.Settle();
  fleet.Advance(absl::Seconds(0.2));
  EXPECT_EQ(fleet.coordinator_->view()->groups[0].members.size(), 2U);
  EXPECT_EQ(fleet.Look().incidents[0].exit->signal, 9);
  EXPECT_EQ(fleet.repeated_, 0);
}

TEST(ShardCoordinator, WhatARestoreLosesIsDoneAgainAndTold) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  for (Lease lease = 1; lease <= 4; ++lease) fleet.saved_.Add(lease);
  for (int i = 0; i < 4; ++i) {
    fleet.Work("w0", 1);
    fleet.Work("w1", 1);
    fleet.Settle();
  }
  EXPECT_EQ(fleet.Look().settled_step, 8);
  const ViewNumber joined = fleet["w0"].joined();
  fleet.Kill("s0");
  fleet.Settle();
  fleet.Start("s0");
  fleet.Settle();
  EXPECT_TRUE(fleet.coordinator_->view()->groups[0].restore);
  EXPECT_GT(fleet["w0"].joined(), joined);
  EXPECT_EQ(fleet.Look().settled_step, 3);
  EXPECT_EQ(fleet.Look().incidents[0].repeated_steps, 5);
  EXPECT_THAT(fleet.Look().incidents[0].message, HasSubstr("5 batches are done again"));
  fleet.WorkAll();
  EXPECT_EQ(fleet.Look().settled_step, 20);
}

TEST(ShardCoordinator, ARestoreFromNothingBeginsWithTheFirstValues) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet.Work("w0");
  fleet.Settle();
  fleet.Work("w1");
  fleet.Settle();
  fleet.Kill("s0");
  fleet.Start("s0");
  fleet.Settle();
  EXPECT_THAT(fleet["w0"].held, ElementsAre(kFirstValues));
  EXPECT_THAT(fleet["w1"].held, IsEmpty());
}

TEST(ShardCoordinator, AHaltIsReportedOnceWorkIsDoneAndEveryServerHasSaved) {
  Fleet fleet = Fleet::Running(2, 2);
  fleet.Work("w0");
  fleet.Settle();
  fleet.desired_.settings.generation = 2;
  fleet.desired_.settings.halt = true;
  fleet.Want();
  fleet.muted_ = {"s1"};  // it is slow to save
  fleet.Settle();
  EXPECT_FALSE(fleet.Look().stopped) << "leases are outstanding";
  fleet.Work("w0");
  fleet.Work("w1");
  fleet.Settle();
  EXPECT_THAT(fleet["w0"].held, IsEmpty());
  EXPECT_FALSE(fleet.Look().stopped) << "s1 has not saved";
  fleet.muted_.clear();
  fleet.Settle();
  EXPECT_TRUE(fleet.Look().stopped);
  fleet.Kill("s0");
  fleet.Settle();
  EXPECT_TRUE(fleet.Look().stopped) << "its pods are being taken away";

  fleet.Start("s0");
  fleet.desired_.settings.halt = false;
  fleet.desired_.settings.generation = 3;
  fleet.Want();
  fleet.Settle();
  EXPECT_FALSE(fleet.Look().stopped);
  EXPECT_THAT(fleet["w0"].held, Not(IsEmpty()));
}

TEST(ShardCoordinator, CheckpointTurnsComeWithTheIntervalWhileBatchesAreDone) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.Work("w0");
  fleet.Settle();
  fleet.desired_.checkpoint_interval_ms = 1000;
  fleet.Want();
  fleet.Work("w0");
  fleet.Advance(absl::Seconds(0.5));
  EXPECT_EQ(fleet["s0"].checkpoint_turn, 0);
  fleet.Advance(absl::Seconds(1));
  const std::int64_t turn = fleet["s0"].checkpoint_turn;
  EXPECT_GT(turn, 0);
  fleet.Advance(absl::Seconds(5));
  EXPECT_EQ(fleet["s0"].checkpoint_turn, turn) << "no batch was done since";
  pb::TrainingReport saved;
  saved.mutable_checkpoint()->set_uri("file:///x");
  fleet["s0"].training.bytes = saved.SerializeAsString();
  fleet.Settle();
  pb::TrainingReport shown;
  ASSERT_TRUE(shown.ParseFromString(fleet.Look().training.bytes));
  EXPECT_EQ(shown.checkpoint().uri(), "file:///x");
  EXPECT_EQ(shown.checkpoint().step(), 2);
}

TEST(ShardCoordinator, ARequestedCheckpointIsAnsweredOnceEveryServerHasWrittenIt) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.Work("w0");
  fleet.Settle();
  EXPECT_EQ(fleet["s0"].checkpoint_turn, 0);
  fleet.desired_.checkpoint_request = "now";
  fleet.Want();
  fleet.Work("w0");
  fleet.Advance(absl::Seconds(1));
  const std::int64_t turn = fleet["s0"].checkpoint_turn;
  EXPECT_GT(turn, 0) << "without an interval, too";
  EXPECT_EQ(fleet.Look().checkpoint_request, "now");
  EXPECT_GT(fleet.Look().checkpoint_request_step, 0);
  fleet.Work("w0");
  fleet.Advance(absl::Seconds(1));
  EXPECT_EQ(fleet["s0"].checkpoint_turn, turn) << "it is carried out once";
}

TEST(ShardCoordinator, ALayoutThatFitsNoTablesFailsTheJobWithTheReason) {
  Fleet fleet = Fleet::Running(1, 1);
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_exchange()->mutable_parameter_server()->set_shards(5000);
  ShardCoordinator coordinator({}, spec);
  coordinator.OnGrant({1, "", fleet.pods_, 0}, fleet.now_);
  coordinator.OnDesired(fleet.desired_, fleet.now_);
  coordinator.OnConnected("uid-w0", fleet.now_);
  Process worker;
  worker.id = {"uid-w0", 0};
  worker.incarnation = 1;
  membership::Report report = fleet.ReportOf(worker);
  pb::ParameterServerReport said;
  Put(Layout{1LL << 40, kSamples, "f"}, *said.mutable_layout());
  report.parameter_server = said.SerializeAsString();
  coordinator.OnReport("uid-w0", report, fleet.now_);
  EXPECT_THAT(coordinator.MakeSummary(fleet.now_).training.failure, HasSubstr("shards: 5000"));
}

TEST(ShardCoordinator, AFailureOfAnyMemberIsTheJobs) {
  Fleet fleet = Fleet::Running(2, 1);
  fleet["w1"].training = {"", false, "the loss is not a number"};
  fleet.Settle();
  EXPECT_EQ(fleet.Look().training.failure, "the loss is not a number");
}

TEST(ShardCoordinator, StoppingEarlierActsWhileItRuns) {
  Fleet fleet = Fleet::Running(1, 1);
  fleet.Work("w0");
  fleet.Settle();
  pb::Settings settings;
  settings.set_generation(2);
  settings.mutable_stop()->set_steps(7);
  fleet.desired_.settings.generation = 2;
  fleet.desired_.settings.values = settings.SerializeAsString();
  fleet.Want();
  fleet.Settle();
  fleet.WorkAll();
  EXPECT_EQ(fleet.Look().settled_step, 7);
  EXPECT_EQ(fleet["w0"].told.evaluate(), 1);
  fleet.Validate("w0");
  EXPECT_TRUE(fleet["w0"].told.conclude());
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
