// SPDX-License-Identifier: Apache-2.0
// Jobs whose workers hold a part of the model: they make every step together, servers follow.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/shard_cluster.h"

namespace starling::parameter_server {
namespace {

using membership::Phase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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
    cluster_.Work("w0");
    cluster_.Settle();
  }
  void Step(const char* worker, std::int64_t base, std::int64_t settled,
            Phase phase = Phase::kRun) {
    cluster_[worker].base_step = base;
    cluster_[worker].settled_step = settled;
    cluster_[worker].phase = phase;
  }
  void SaveSteps(std::int64_t steps) {
    for (LeaseLedger& ledger : cluster_.ledgers_) ledger.Add(1, static_cast<Lease>(steps) + 2);
    cluster_.Settle();
  }
  void Halt(bool halt = true) {
    ++cluster_.desired_.settings.generation;
    cluster_.desired_.settings.halt = halt;
    cluster_.Want();
    cluster_.Settle();
  }
  Cluster cluster_ = Cluster::Running(2, 2, BothSpec());
};

TEST_F(StepsOfBoth, TheJobIsWhereItsWorkersAreInTheNewestView) {
  EXPECT_EQ(cluster_.Look().settled_step, 0);
  Step("w0", 0, 2);
  Step("w1", 0, 3);
  cluster_.Settle();
  EXPECT_EQ(cluster_.Look().settled_step, 3) << "what one knows to be settled all have";
  Step("w0", -1, 9);
  Step("w1", -1, 9);
  cluster_.Settle();
  EXPECT_EQ(cluster_.Look().settled_step, 3) << "nobody has synced";
  Step("w0", 0, 4);
  cluster_["w1"].installed->number -= 1;
  Step("w1", 0, 8);
  cluster_.Report("w0");
  cluster_.Report("w1");
  EXPECT_EQ(cluster_.Look().settled_step, 4) << "of an earlier view nothing counts";
  Step("w0", 0, 0);
  cluster_.Report("w0");
  EXPECT_EQ(cluster_.Look().settled_step, 0) << "they were restored from the first values";
}

TEST_F(StepsOfBoth, WhatServersLackOfWhatTheViewBeganWithIsDealt) {
  EXPECT_THAT(cluster_["w0"].held, IsEmpty());
  Step("w0", 0, 3);
  Step("w1", 0, 3);
  cluster_.Settle();
  EXPECT_THAT(cluster_["w0"].held, IsEmpty()) << "their ledgers are on their way";
  Step("w0", 2, 3);
  Step("w1", 2, 3);
  cluster_.Settle();
  std::set<Lease> held = cluster_["w0"].held;
  held.merge(cluster_["w1"].held);
  EXPECT_THAT(held, ElementsAre(2, 3));
}

// Else whoever holds such a lease waits to read for a step that nobody makes without it.
TEST_F(StepsOfBoth, WhatWasDealtIsRecalledWhenWorkersGoBackToBeforeIt) {
  const auto held = [&] {
    std::set<Lease> all = cluster_["w0"].held;
    all.insert(cluster_["w1"].held.begin(), cluster_["w1"].held.end());
    return all;
  };
  for (const char* worker : {"w0", "w1"}) Step(worker, 2, 3);
  cluster_.Settle();
  ASSERT_THAT(held(), ElementsAre(2, 3));
  for (const char* worker : {"w0", "w1"}) Step(worker, 1, 1);
  cluster_.Settle();
  EXPECT_THAT(held(), ElementsAre(2));
}

TEST_F(StepsOfBoth, TrainingIsOverWhenEveryWorkerSaysSoAndServersHaveTheirSteps) {
  Step("w0", 0, 2, Phase::kDone);
  Step("w1", 0, 2);
  SaveSteps(2);
  EXPECT_FALSE(cluster_["w0"].told.conclude());
  Step("w1", 0, 3, Phase::kDone);
  cluster_.Settle();
  EXPECT_FALSE(cluster_["w0"].told.conclude()) << "a step is on its way to the servers";
  SaveSteps(3);
  EXPECT_TRUE(cluster_["w0"].told.conclude());
  EXPECT_FALSE(cluster_["w1"].told.conclude());
}

TEST_F(StepsOfBoth, WhoIsDoneInAnEarlierViewIsNotDone) {
  SaveSteps(2);
  for (const char* last : {"w0", "w1"}) {
    for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2, Phase::kDone);
    cluster_[last].installed->number -= 1;
    for (const char* worker : {"w0", "w1"}) cluster_.Report(worker);
    cluster_.Obey(cluster_["w0"]);
    EXPECT_FALSE(cluster_["w0"].told.conclude()) << last;
    cluster_[last].installed->number += 1;
    for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2);
    cluster_.Settle();
  }
}

TEST_F(StepsOfBoth, NoneIsOverThatTheOthersAreDoneWith) {
  SaveSteps(2);
  Step("w0", 0, 2);
  Step("w1", 0, 2, Phase::kDone);
  cluster_.Settle();
  EXPECT_FALSE(cluster_["w0"].told.conclude());
}

TEST_F(StepsOfBoth, AHaltedJobDoesNotEndThoughItsWorkersAreDone) {
  Halt();
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2, Phase::kDone);
  SaveSteps(2);
  EXPECT_FALSE(cluster_["w0"].told.conclude());
  Halt(false);
  EXPECT_TRUE(cluster_["w0"].told.conclude());
}

TEST_F(StepsOfBoth, AHaltIsSavedWhenEveryWorkerHasStoppedInTheNewestView) {
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2);
  SaveSteps(2);
  Halt();
  const auto asked = [&] { return cluster_.coordinator_->DirectiveFor("uid-s0").checkpoint_turn; };
  const std::int64_t before = asked();
  cluster_["w0"].stopped = true;
  cluster_.Settle();
  EXPECT_EQ(asked(), before) << "one still steps";
  EXPECT_FALSE(cluster_.Look().stopped);
  cluster_["s1"].saves = false;
  cluster_["w1"].stopped = true;
  cluster_.Settle();
  const std::int64_t round = asked();
  EXPECT_GT(round, before);
  EXPECT_FALSE(cluster_.Look().stopped) << "a server has not saved";
  cluster_["s1"].saves = true;
  cluster_.Settle();
  EXPECT_TRUE(cluster_.Look().stopped);
  EXPECT_EQ(asked(), round) << "once is enough";
  for (const char* worker : {"w0", "w1"}) cluster_[worker].stopped = false;
  Halt(false);
  EXPECT_FALSE(cluster_.Look().stopped);
}

// Else they would wait for ever: in the view in which they have stopped they make no step.
TEST_F(StepsOfBoth, WhoHasStoppedGoesOnInAViewOfItsOwnWhenTheJobIsWantedAgain) {
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2);
  SaveSteps(2);
  Halt();
  for (const char* worker : {"w0", "w1"}) cluster_[worker].stopped = true;
  cluster_.Settle();
  ASSERT_TRUE(cluster_.Look().stopped);
  const View before = *cluster_.coordinator_->view();
  ++cluster_.desired_.settings.generation;
  cluster_.desired_.settings.halt = false;
  cluster_.Want();
  EXPECT_GT(cluster_.coordinator_->view()->number, before.number);
  EXPECT_EQ(cluster_.coordinator_->view()->groups.back().members, before.groups.back().members);
  const ViewNumber next = cluster_.coordinator_->view()->number;
  for (const char* worker : {"w0", "w1"}) cluster_[worker].stopped = false;
  cluster_.Settle();
  EXPECT_EQ(cluster_.coordinator_->view()->number, next) << "one is enough";
}

TEST_F(StepsOfBoth, WhoStoppedInAnEarlierViewHasNotStopped) {
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2);
  SaveSteps(2);
  Halt();
  const auto asked = [&] { return cluster_.coordinator_->DirectiveFor("uid-s0").checkpoint_turn; };
  const std::int64_t before = asked();
  cluster_["w0"].stopped = cluster_["w1"].stopped = true;
  cluster_["w1"].installed->number -= 1;
  cluster_.Report("w0");
  cluster_.Report("w1");
  EXPECT_EQ(asked(), before);
  cluster_["w1"].installed->number += 1;
  cluster_.Report("w1");
  EXPECT_GT(asked(), before);
}

// Nobody is halted: the servers save what they have while the workers go on.
TEST_F(StepsOfBoth, ServersThatAllLeaveSaveThoughWorkersHaveNotStopped) {
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2);
  SaveSteps(2);
  for (const char* name : {"s0", "s1"}) cluster_.PodOf(name).state = PodState::kDraining;
  cluster_.Want();
  cluster_.Settle();
  EXPECT_TRUE(cluster_["s0"].released);
  EXPECT_TRUE(cluster_["s1"].released);
}

TEST_F(StepsOfBoth, NoHaltWaitsForAWorkerThatHasEnded) {
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2);
  SaveSteps(2);
  cluster_.desired_.min_workers = 2;  // so that no view goes on without it
  Halt();
  cluster_["w0"].stopped = true;
  cluster_.Kill("w1");
  cluster_.PodOf("w1").state = PodState::kTerminated;
  cluster_.Want();
  cluster_.Settle();
  EXPECT_TRUE(cluster_.Look().stopped);
}

// The chains come first; what their own group's members say of it is told behind them.
TEST_F(StepsOfBoth, TheWorkersAreTheLastGroupAndWhatTheyHoldIsKnown) {
  const auto group = [&] { return cluster_.coordinator_->view()->groups.back(); };
  ASSERT_THAT(cluster_.coordinator_->view()->groups, SizeIs(4));
  EXPECT_THAT(group().members, ElementsAre(cluster_["w0"].id, cluster_["w1"].id));
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2);
  cluster_.Settle();
  EXPECT_EQ(cluster_.Look().waiting, "");
  cluster_["w1"].phase = Phase::kLost;
  cluster_.Settle();
  EXPECT_THAT(cluster_.Look().waiting, HasSubstr("the last steps"));
}

TEST_F(StepsOfBoth, AWorkerThatLingersIsNotTakenIn) {
  cluster_.AddPod("w", kWorkerRole, 2);
  cluster_.desired_.workers = 3;
  cluster_.Want();
  cluster_.Start("w2").phase = Phase::kLinger;
  cluster_["w2"].installed = View();
  cluster_.Settle();
  cluster_.Advance(absl::Seconds(0.2));
  EXPECT_FALSE(cluster_.coordinator_->view()->Has(cluster_["w2"].id));
}

// No view goes on without it, and its pod's next process may not be in one.
TEST_F(StepsOfBoth, WhoWasInTheViewAndIsReplacedIsNotAskedAnyMore) {
  cluster_.desired_.min_workers = 2;
  cluster_.Want();
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2);
  SaveSteps(2);
  const ViewNumber before = cluster_.Look().newest_view;
  cluster_.Kill("w1");
  cluster_.Start("w1").samples = kSamples - 1;
  cluster_.Meet("w1");
  cluster_.Kill("s0");
  cluster_.Start("s0");
  cluster_.Meet("s0");
  EXPECT_EQ(cluster_.Look().newest_view, before);
  EXPECT_EQ(cluster_.Look().settled_step, 2);
  EXPECT_EQ(cluster_["s1"].checkpoint_turn, 0);
}

TEST_F(StepsOfBoth, ASuccessorHasNothingSavedBeforeItKnowsTheLedgers) {
  for (const char* worker : {"w0", "w1"}) Step(worker, 0, 2);
  SaveSteps(2);
  Halt();
  for (const char* worker : {"w0", "w1"}) cluster_[worker].stopped = true;
  cluster_.NewCoordinator();
  const auto asked = [&] { return cluster_.coordinator_->DirectiveFor("uid-s0").checkpoint_turn; };
  for (const char* name : {"w0", "w1", "s0", "s1"}) {
    cluster_.Connect(name);
    cluster_.Obey(cluster_[name]);
    membership::Report report = cluster_.ReportOf(cluster_[name]);
    pb::ParameterServerReport said;
    ASSERT_TRUE(said.ParseFromString(report.parameter_server));
    said.clear_ledgers();
    report.parameter_server = said.SerializeAsString();
    cluster_.Say(report);
  }
  ASSERT_NE(cluster_.coordinator_->view(), nullptr);
  EXPECT_EQ(asked(), 0);
  for (const char* name : {"s0", "s1"}) cluster_.Report(name);
  EXPECT_GT(asked(), 0);
}

TEST_F(StepsOfBoth, WorkersStepOnWithFewerServersThanAreWanted) {
  cluster_.desired_.min_servers = 2;
  cluster_.Want();
  cluster_.Kill("s1");
  cluster_.Settle();
  Step("w0", 2, 2);
  Step("w1", 2, 2);
  cluster_.Settle();
  EXPECT_EQ(cluster_.Look().waiting, "");
  EXPECT_EQ(cluster_["w0"].held.size() + cluster_["w1"].held.size(), 2U) << "what servers lack";
}

}  // namespace
}  // namespace starling::parameter_server
