// SPDX-License-Identifier: Apache-2.0
// Jobs whose workers hold a part of the model: they make every step together, servers follow.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/shard_fleet.h"

namespace starling::parameter_server {
namespace {

using membership::Phase;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A batch of 4 samples is one lease; the first values are at the servers.
class StepsOfBoth : public ::testing::Test {
 protected:
  static pb::TrainingJobSpec BothSpec() {
    pb::TrainingJobSpec spec = Spec();
    spec.mutable_dataset()->set_global_batch_size(4);
    pb::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
    server.add_tensors("table.*");
    server.mutable_consistency()->mutable_bulk_synchronous();
    return spec;
  }
  StepsOfBoth() {
    fleet_.Work("w0");
    fleet_.Settle();
  }
  void Step(const char* worker, std::int64_t base, std::int64_t settled,
            Phase phase = Phase::kRun) {
    fleet_[worker].base_step = base;
    fleet_[worker].settled_step = settled;
    fleet_[worker].phase = phase;
  }
  void SaveSteps(std::int64_t steps) {
    for (LeaseLedger& ledger : fleet_.ledgers_) ledger.Add(1, static_cast<Lease>(steps) + 2);
    fleet_.Settle();
  }
  void Halt(bool halt = true) {
    ++fleet_.desired_.settings.generation;
    fleet_.desired_.settings.halt = halt;
    fleet_.Want();
    fleet_.Settle();
  }
  Fleet fleet_ = Fleet::Running(2, 2, BothSpec());
};

TEST_F(StepsOfBoth, TheJobIsWhereItsWorkersAreInTheNewestView) {
  EXPECT_EQ(fleet_.Look().settled_step, 0);
  Step("w0", 0, 2);
  Step("w1", 0, 3);
  fleet_.Settle();
  EXPECT_EQ(fleet_.Look().settled_step, 3) << "what one knows to be settled all have";
  Step("w0", -1, 9);
  Step("w1", -1, 9);
  fleet_.Settle();
  EXPECT_EQ(fleet_.Look().settled_step, 3) << "nobody has synced";
  Step("w0", 0, 4);
  fleet_["w1"].installed->number -= 1;
  Step("w1", 0, 8);
  fleet_.Report("w0");
  fleet_.Report("w1");
  EXPECT_EQ(fleet_.Look().settled_step, 4) << "of an earlier view nothing counts";
}

TEST_F(StepsOfBoth, WhatServersLackOfWhatTheViewBeganWithIsDealt) {
  EXPECT_THAT(fleet_["w0"].held, IsEmpty());
  Step("w0", 0, 3);
  Step("w1", 0, 3);
  fleet_.Settle();
  EXPECT_THAT(fleet_["w0"].held, IsEmpty()) << "their ledgers are on their way";
  Step("w0", 2, 3);
  Step("w1", 2, 3);
  fleet_.Settle();
  std::set<Lease> held = fleet_["w0"].held;
  held.merge(fleet_["w1"].held);
  EXPECT_THAT(held, ElementsAre(2, 3));
}

TEST_F(StepsOfBoth, TrainingIsOverWhenEveryWorkerSaysSoAndServersHaveTheirSteps) {
  Step("w0", 0, 2, Phase::kDone);
  Step("w1", 0, 2);
  SaveSteps(2);
  EXPECT_FALSE(fleet_["w0"].told.conclude());
  Step("w1", 0, 3, Phase::kDone);
  fleet_.Settle();
  EXPECT_FALSE(fleet_["w0"].told.conclude()) << "a step is on its way to the servers";
  SaveSteps(3);
  EXPECT_TRUE(fleet_["w0"].told.conclude());
  EXPECT_FALSE(fleet_["w1"].told.conclude());
}

TEST_F(StepsOfBoth, AHaltedJobDoesNotEndThoughItsWorkersAreDone) {
  Halt();
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2, Phase::kDone);
  SaveSteps(2);
  EXPECT_FALSE(fleet_["w0"].told.conclude());
  Halt(false);
  EXPECT_TRUE(fleet_["w0"].told.conclude());
}

TEST_F(StepsOfBoth, AHaltIsSavedWhenEveryWorkerHasStoppedInTheNewestView) {
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2);
  SaveSteps(2);
  Halt();
  const auto asked = [&] { return fleet_.coordinator_->DirectiveFor("uid-s0").checkpoint_turn; };
  const std::int64_t before = asked();
  fleet_["w0"].stopped = true;
  fleet_.Settle();
  EXPECT_EQ(asked(), before) << "one still steps";
  EXPECT_FALSE(fleet_.Look().stopped);
  fleet_["s1"].saves = false;
  fleet_["w1"].stopped = true;
  fleet_.Settle();
  const std::int64_t round = asked();
  EXPECT_GT(round, before);
  EXPECT_FALSE(fleet_.Look().stopped) << "a server has not saved";
  fleet_["s1"].saves = true;
  fleet_.Settle();
  EXPECT_TRUE(fleet_.Look().stopped);
  EXPECT_EQ(asked(), round) << "once is enough";
  for (const char* worker : {"w0", "w1"}) fleet_[worker].stopped = false;
  Halt(false);
  EXPECT_FALSE(fleet_.Look().stopped);
}

TEST_F(StepsOfBoth, NoHaltWaitsForAWorkerThatHasEnded) {
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2);
  SaveSteps(2);
  fleet_.desired_.min_workers = 2;  // so that no view goes on without it
  Halt();
  fleet_["w0"].stopped = true;
  fleet_.Kill("w1");
  fleet_.PodOf("w1").state = PodState::kTerminated;
  fleet_.Want();
  fleet_.Settle();
  EXPECT_TRUE(fleet_.Look().stopped);
}

TEST_F(StepsOfBoth, WorkersStepOnWithFewerServersThanAreWanted) {
  fleet_.desired_.min_servers = 2;
  fleet_.Want();
  fleet_.Kill("s1");
  fleet_.Settle();
  Step("w0", 2, 2);
  Step("w1", 2, 2);
  fleet_.Settle();
  EXPECT_EQ(fleet_.Look().waiting, "");
  EXPECT_EQ(fleet_["w0"].held.size() + fleet_["w1"].held.size(), 2U) << "what servers lack";
}

}  // namespace
}  // namespace starling::parameter_server
