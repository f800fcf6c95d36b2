// SPDX-License-Identifier: Apache-2.0
// What people and the controller are told of a job: training, settings, checkpoints, losses.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/shard_fleet.h"

namespace starling::parameter_server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

membership::Training Checkpoint(const std::string& uri) {
  pb::TrainingReport saved;
  saved.mutable_checkpoint()->set_uri(uri);
  return {saved.SerializeAsString(), false, ""};
}
membership::Training Progress(std::int64_t epoch) {
  pb::TrainingReport report;
  report.mutable_progress()->set_epoch(epoch);
  return {report.SerializeAsString(), false, ""};
}

class Telling : public ::testing::Test {
 protected:
  void Begin(int workers, int servers) {
    fleet_.emplace(Fleet::Running(workers, servers));
    fleet_->Work("w0");
    fleet_->Settle();
  }
  Fleet& fleet() { return *fleet_; }
  pb::TrainingReport Told() {
    pb::TrainingReport report;
    EXPECT_TRUE(report.ParseFromString(fleet().Look().training.bytes));
    return report;
  }
  void Ask(const std::string& request) {
    fleet().desired_.checkpoint_request = request;
    fleet().Want();
  }
  void Halt(bool halt = true) {
    ++fleet().desired_.settings.generation;
    fleet().desired_.settings.halt = halt;
    fleet().Want();
    fleet().Settle();
  }
  // Every link is broken, and `bad` is blamed.
  void Fail(const std::string& bad) {
    const MemberId id = fleet()[bad].id;
    for (auto& [name, process] : fleet().processes_) {
      process.broken = true;
      if (process.server) process.unreachable = {id};
    }
    for (auto& [name, process] : fleet().processes_) fleet().Report(name);
    fleet().Settle();
  }
  const membership::IncidentRecord& Incident() {
    incidents_ = fleet().Look().incidents;
    EXPECT_THAT(incidents_, SizeIs(1));
    return incidents_.at(0);
  }

  std::optional<Fleet> fleet_;
  std::vector<membership::IncidentRecord> incidents_;
};

// Training.

TEST_F(Telling, TheFirstWorkerOfTheViewSpeaks) {
  Begin(2, 1);
  fleet()["w0"].training = Progress(3);
  fleet()["w1"].training = Progress(4);
  fleet().Settle();
  EXPECT_EQ(Told().progress().epoch(), 3);
  fleet()["w1"].training.has_result = true;
  fleet().Settle();
  EXPECT_EQ(Told().progress().epoch(), 4) << "it has the result";
}

TEST_F(Telling, WhoIsNotInTheViewSpeaksOnlyWhereNobodyElseDoes) {
  fleet_.emplace(2, 1);
  fleet().Start("w0");
  fleet().Start("w1").training = Progress(1);
  fleet().Settle();
  ASSERT_EQ(fleet().coordinator_->view(), nullptr);
  EXPECT_EQ(fleet().Look().training, membership::Training()) << "the first says nothing yet";
  fleet()["w0"].training = Progress(2);
  fleet().Settle();
  EXPECT_EQ(Told().progress().epoch(), 2);
  fleet()["w0"].samples = kSamples - 1;  // so that it is not admitted
  fleet().Start("s0");
  fleet().Settle();
  fleet().Advance(absl::Seconds(1.5));
  ASSERT_THAT(fleet().coordinator_->view()->workers(), SizeIs(1));
  EXPECT_EQ(Told().progress().epoch(), 1);
}

TEST_F(Telling, WhatWasHeardLastStaysWhileNobodySaysMore) {
  Begin(1, 1);
  fleet()["w0"].training = Progress(3);
  fleet().Settle();
  fleet().Start("w0");
  fleet().Settle();
  EXPECT_EQ(Told().progress().epoch(), 3) << "its new process knows nothing yet";
}

TEST_F(Telling, AServersFailureIsTheJobsAndNothingElseThatItSays) {
  Begin(1, 1);
  fleet()["w0"].training = Progress(3);
  fleet()["s0"].training = Progress(9);
  fleet().Settle();
  EXPECT_EQ(Told().progress().epoch(), 3);
  fleet()["s0"].training.failure = "its disk is full";
  fleet().Settle();
  EXPECT_EQ(fleet().Look().training.failure, "its disk is full");
}

TEST_F(Telling, WhoWasGivenUpSaysNothingBeforeItIsTakenBack) {
  Begin(2, 2);
  fleet().NewCoordinator();
  for (const char* name : {"s0", "s1", "w0"}) fleet().Meet(name);
  fleet().Pass(absl::Seconds(2.5));
  ASSERT_THAT(fleet().coordinator_->assumed_terminated(), SizeIs(1));
  fleet()["w1"].training.failure = "what it knew";
  fleet().Meet("w1");
  EXPECT_EQ(fleet().Look().training.failure, "") << "the others have not synced without it";
  fleet().Settle();
  fleet().Advance(absl::Seconds(1));
  EXPECT_EQ(fleet().Look().training.failure, "what it knew");
}

// Progress and settings.

TEST_F(Telling, HowFarItIsIsToldWhenTheLedgersAreKnownAndNotForgottenInARestore) {
  fleet_.emplace(1, 1);
  fleet().Start("w0");
  fleet().Settle();
  EXPECT_EQ(fleet().Look().settled_step, -1);
  fleet().Start("s0");
  fleet().Settle();
  EXPECT_EQ(fleet().Look().settled_step, 0);
  fleet().Work("w0");
  fleet().Settle();
  fleet().Work("w0", 1);
  fleet().Settle();
  ASSERT_EQ(fleet().Look().settled_step, 1);
  fleet().saved_.Add(kFirstValues);
  fleet().Kill("s0");
  fleet().Start("s0");
  fleet().Meet("s0");
  ASSERT_TRUE(fleet().coordinator_->view()->groups[0].restore);
  EXPECT_EQ(fleet().Look().settled_step, 1) << "what the restore costs is not known yet";
  fleet().Settle();
  EXPECT_EQ(fleet().Look().settled_step, 0);
}

TEST_F(Telling, SettingsAreThoseThatAllOfTheViewHave) {
  EXPECT_EQ(Fleet(1, 1).Look().settings_generation, 0);
  Begin(2, 1);
  fleet()["w0"].settings_generation = 3;
  fleet()["w1"].settings_generation = 2;
  fleet()["s0"].settings_generation = 4;
  fleet().Settle();
  EXPECT_EQ(fleet().Look().settings_generation, 2);
  fleet().AddPod("w", kWorkerRole, 2);
  fleet().Want();
  fleet().Start("w2").samples = kSamples - 1;  // not admitted
  fleet().Settle();
  EXPECT_EQ(fleet().Look().settings_generation, 2);
}

// Checkpoints.

TEST_F(Telling, TheFirstBatchIsWorthACheckpoint) {
  Begin(1, 1);
  Ask("now");
  fleet().Advance(absl::Seconds(0.2));
  EXPECT_EQ(fleet()["s0"].checkpoint_turn, 0) << "there are only the first values";
  fleet().Work("w0", 1);
  fleet().Advance(absl::Seconds(0.2));
  EXPECT_GT(fleet()["s0"].checkpoint_turn, 0);
}

TEST_F(Telling, ARequestIsAnsweredWhenTheLastServerHasSavedAndNotBefore) {
  Begin(1, 2);
  fleet().Work("w0", 1);
  fleet()["s1"].saves = false;
  Ask("now");
  fleet().Advance(absl::Seconds(0.2));
  EXPECT_GT(fleet()["s0"].checkpoint_turn, 0);
  EXPECT_EQ(fleet().Look().checkpoint_request, "");
  fleet()["s1"].saves = true;
  fleet().Advance(absl::Seconds(0.2));
  EXPECT_EQ(fleet().Look().checkpoint_request, "now");
}

TEST_F(Telling, TheNextCheckpointComesAnIntervalAfterTheLast) {
  Begin(1, 1);
  fleet().desired_.checkpoint_interval_ms = 1000;
  fleet().Want();
  fleet().Work("w0", 1);
  fleet().Advance(absl::Seconds(1.2));
  const std::int64_t first = fleet()["s0"].checkpoint_turn;
  ASSERT_GT(first, 0);
  fleet().Work("w0", 1);
  fleet().Advance(absl::Seconds(0.5));
  EXPECT_EQ(fleet()["s0"].checkpoint_turn, first);
  fleet().Work("w0", 1);
  fleet().Advance(absl::Seconds(1));
  EXPECT_GT(fleet()["s0"].checkpoint_turn, first);
}

TEST_F(Telling, WhileTheViewDoesNotRunNobodyIsAskedToSave) {
  Begin(1, 2);
  fleet().Work("w0", 1);
  fleet().Settle();
  fleet()["s0"].broken = true;
  fleet().Report("s0");
  const auto asked = [&] { return fleet().coordinator_->DirectiveFor("uid-s0").checkpoint_turn; };
  Ask("now");
  EXPECT_EQ(asked(), 0);
  fleet()["s0"].broken = false;
  fleet().Report("s0");
  EXPECT_GT(asked(), 0);
}

TEST_F(Telling, OnlyWhatServersHaveSavedIsToldWithTheStepOfItsRound) {
  Begin(1, 2);
  fleet()["w0"].training = Progress(3);
  fleet()["s0"].training = Checkpoint("file:///x");
  fleet()["s1"].training = Progress(9);
  fleet().Settle();
  EXPECT_FALSE(Told().has_checkpoint()) << "which step it is of is not known";
  fleet().Work("w0", 1);
  Ask("now");
  fleet().Advance(absl::Seconds(0.2));
  EXPECT_EQ(Told().checkpoint().uri(), "file:///x");
  EXPECT_EQ(Told().checkpoint().step(), 1);
  EXPECT_EQ(Told().progress().epoch(), 3) << "beside what the worker says";
  fleet()["s1"].training.bytes = Checkpoint("file:///y").bytes + "\xff";
  fleet().Settle();
  EXPECT_EQ(Told().checkpoint().uri(), "file:///x") << "what is damaged is not believed";
  fleet()["s0"].training = {};
  fleet().Settle();
  EXPECT_FALSE(Told().has_checkpoint() && Told().checkpoint().uri().empty()) << "no empty one";
}

TEST_F(Telling, ACheckpointOfTheFirstValuesIsOne) {
  fleet_.emplace(Fleet::Running(1, 1));
  fleet()["s0"].training = Checkpoint("file:///x");
  Halt();
  EXPECT_FALSE(Told().has_checkpoint());
  fleet().Work("w0");
  fleet().Settle();
  ASSERT_TRUE(fleet().Look().stopped);
  ASSERT_EQ(fleet().Look().settled_step, 0);
  EXPECT_EQ(Told().checkpoint().uri(), "file:///x");
}

// Halting.

TEST_F(Telling, EveryHaltIsSavedAnew) {
  Begin(1, 2);
  Halt();
  fleet().Work("w0");
  fleet().Settle();
  ASSERT_TRUE(fleet().Look().stopped);
  const std::int64_t first = fleet()["s0"].checkpoint_turn;
  Halt(false);
  ASSERT_FALSE(fleet().Look().stopped);
  fleet().Work("w0", 1);
  fleet().Settle();
  fleet()["s1"].saves = false;
  Halt();
  fleet().Work("w0");
  fleet().Settle();
  EXPECT_GT(fleet()["s0"].checkpoint_turn, first);
  EXPECT_FALSE(fleet().Look().stopped) << "a server has not saved";
  fleet()["s1"].saves = true;
  fleet().Settle();
  EXPECT_TRUE(fleet().Look().stopped);
}

TEST_F(Telling, AHaltIsNotSavedWhileTheViewDoesNotRun) {
  Begin(1, 2);
  fleet().Work("w0");
  fleet().Settle();
  Halt();
  fleet().muted_ = {"w0", "s0", "s1"};
  fleet().Work("w0");
  fleet().muted_.clear();
  fleet()["s1"].broken = true;
  for (const char* name : {"s1", "s0", "w0"}) fleet().Report(name);
  const auto asked = [&] { return fleet().coordinator_->DirectiveFor("uid-s0").checkpoint_turn; };
  EXPECT_EQ(asked(), 0);
  fleet()["s1"].broken = false;
  fleet().Report("s1");
  EXPECT_GT(asked(), 0);
}

TEST_F(Telling, WhenAllServersAreAskedToGoNothingMoreIsGivenOut) {
  Begin(1, 2);
  fleet().muted_ = {"s1"};  // it is slow to save
  for (const char* name : {"s0", "s1"}) fleet().PodOf(name).state = PodState::kDraining;
  fleet().Want();
  const std::size_t held = fleet()["w0"].held.size();
  ASSERT_GT(held, 0U);
  fleet().Work("w0", 1);
  fleet().Settle();
  EXPECT_EQ(fleet()["w0"].held.size(), held - 1);
}

TEST_F(Telling, WithTooFewNothingMoreIsGivenOutAndWhoIsMissingIsToldButAHaltEndsWhatIsBegun) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_dataset()->set_global_batch_size(4);
  pb::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_samples_per_push(1);
  server.mutable_consistency()->mutable_bulk_synchronous();
  fleet_.emplace(Fleet::Running(2, 2, spec));
  fleet().Work("w0");
  fleet().Settle();
  fleet().desired_.min_servers = 2;
  fleet().Want();
  fleet().Kill("s1");
  fleet().Kill("w1");
  fleet().Advance(absl::Seconds(3));
  ASSERT_THAT(fleet().coordinator_->view()->servers(), SizeIs(1));
  EXPECT_THAT(
      fleet().Look().waiting,
      HasSubstr("1 workers and 1 parameter servers are there, at least 1 and 2 are needed"));
  const std::size_t held = fleet()["w0"].held.size();
  fleet().Work("w0", 1);
  fleet().Settle();
  EXPECT_EQ(fleet()["w0"].held.size(), held - 1) << "what the other had stays open";
  Halt();
  EXPECT_GT(fleet()["w0"].held.size(), held - 1);
  EXPECT_THAT(fleet().Look().waiting, Not(HasSubstr("are needed")));
}

// Losses.

TEST_F(Telling, AFailureIsForgottenOnceABatchIsDone) {
  Begin(3, 2);
  Fail("w2");
  for (const char* name : {"w0", "w1", "w2"}) fleet().Work(name, 1);
  fleet().Settle();
  Fail("w2");
  EXPECT_THAT(fleet().coordinator_->view()->workers(), SizeIs(3)) << "it is the first again";
  Fail("w2");
  EXPECT_THAT(fleet().coordinator_->view()->workers(), SizeIs(2));
}

TEST_F(Telling, ALossIsOverOnceAndNotBeforeAViewGoesOnWithoutTheLost) {
  Begin(2, 1);
  fleet().Work("w0", 1);
  fleet().Settle();
  fleet().desired_.min_workers = 2;
  fleet().Want();
  fleet().Kill("w1");
  fleet().Advance(absl::Seconds(0.2));
  fleet().Work("w0", 1);
  fleet().Advance(absl::Seconds(0.2));
  fleet().desired_.min_workers = 1;
  fleet().Want();
  fleet().Settle();
  while (!Incident().recovery && fleet().Work("w0", 1) > 0) fleet().Advance(absl::Seconds(0.1));
  const std::optional<absl::Duration> recovery = Incident().recovery;
  ASSERT_TRUE(recovery);
  EXPECT_THAT(Incident().message, EndsWith("go on")) << "nothing is done again";
  fleet().Advance(absl::Seconds(1));
  EXPECT_EQ(Incident().recovery, recovery);
}

TEST_F(Telling, ARestoreThatCostsOneBatchSaysSo) {
  Begin(1, 1);
  for (Lease lease = 1; lease <= 2; ++lease) fleet().saved_.Add(lease);
  for (int i = 0; i < 2; ++i) {
    fleet().Work("w0", 1);
    fleet().Settle();
  }
  fleet().Kill("s0");
  fleet().Start("s0");
  fleet().Settle();
  EXPECT_EQ(Incident().repeated_steps, 1);
  EXPECT_THAT(Incident().message, EndsWith("; 1 batch is done again"));
  EXPECT_FALSE(Incident().recovery) << "none is done yet";
  fleet().Work("w0", 1);
  fleet().Settle();
  EXPECT_TRUE(Incident().recovery);
}

}  // namespace
}  // namespace starling::parameter_server
