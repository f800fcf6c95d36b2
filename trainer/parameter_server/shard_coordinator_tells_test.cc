// SPDX-License-Identifier: Apache-2.0
// What people and the controller are told of a job: training, settings, checkpoints, losses.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/shard_cluster.h"

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
    cluster_.emplace(Cluster::Running(workers, servers));
    cluster_->Work("w0");
    cluster_->Settle();
  }
  Cluster& cluster() { return *cluster_; }
  pb::TrainingReport Told() {
    pb::TrainingReport report;
    EXPECT_TRUE(report.ParseFromString(cluster().Look().training.bytes));
    return report;
  }
  void Ask(const std::string& request) {
    cluster().desired_.checkpoint_request = request;
    cluster().Want();
  }
  void Halt(bool halt = true) {
    ++cluster().desired_.settings.generation;
    cluster().desired_.settings.halt = halt;
    cluster().Want();
    cluster().Settle();
  }
  // Every link is broken, and `bad` is blamed.
  void Fail(const std::string& bad) {
    const MemberId id = cluster()[bad].id;
    for (auto& [name, process] : cluster().processes_) {
      process.broken = true;
      if (process.server) process.unreachable = {id};
    }
    for (auto& [name, process] : cluster().processes_) cluster().Report(name);
    cluster().Settle();
  }
  const membership::IncidentRecord& Incident() {
    incidents_ = cluster().Look().incidents;
    EXPECT_THAT(incidents_, SizeIs(1));
    return incidents_.at(0);
  }

  std::optional<Cluster> cluster_;
  std::vector<membership::IncidentRecord> incidents_;
};

// Training.

TEST_F(Telling, TheFirstWorkerOfTheViewSpeaks) {
  Begin(2, 1);
  cluster()["w0"].training = Progress(3);
  cluster()["w1"].training = Progress(4);
  cluster().Settle();
  EXPECT_EQ(Told().progress().epoch(), 3);
  cluster()["w1"].training.has_result = true;
  cluster().Settle();
  EXPECT_EQ(Told().progress().epoch(), 4) << "it has the result";
}

TEST_F(Telling, WhoIsNotInTheViewSpeaksOnlyWhereNobodyElseDoes) {
  cluster_.emplace(2, 1);
  cluster().Start("w0");
  cluster().Start("w1").training = Progress(1);
  cluster().Settle();
  ASSERT_EQ(cluster().coordinator_->view(), nullptr);
  EXPECT_EQ(cluster().Look().training, membership::Training()) << "the first says nothing yet";
  cluster()["w0"].training = Progress(2);
  cluster().Settle();
  EXPECT_EQ(Told().progress().epoch(), 2);
  cluster()["w0"].samples = kSamples - 1;  // so that it is not admitted
  cluster().Start("s0");
  cluster().Settle();
  cluster().Advance(absl::Seconds(1.5));
  ASSERT_THAT(cluster().coordinator_->view()->workers(), SizeIs(1));
  EXPECT_EQ(Told().progress().epoch(), 1);
}

TEST_F(Telling, WhatWasHeardLastStaysWhileNobodySaysMore) {
  Begin(1, 1);
  cluster()["w0"].training = Progress(3);
  cluster().Settle();
  cluster().Start("w0");
  cluster().Settle();
  EXPECT_EQ(Told().progress().epoch(), 3) << "its new process knows nothing yet";
}

TEST_F(Telling, AServersFailureIsTheJobsAndNothingElseThatItSays) {
  Begin(1, 1);
  cluster()["w0"].training = Progress(3);
  cluster()["s0"].training = Progress(9);
  cluster().Settle();
  EXPECT_EQ(Told().progress().epoch(), 3);
  cluster()["s0"].training.failure = "its disk is full";
  cluster().Settle();
  EXPECT_EQ(cluster().Look().training.failure, "its disk is full");
}

TEST_F(Telling, WhoWasGivenUpSaysNothingBeforeItIsTakenBack) {
  Begin(2, 2);
  cluster().NewCoordinator();
  for (const char* name : {"s0", "s1", "w0"}) cluster().Meet(name);
  cluster().Pass(absl::Seconds(2.5));
  ASSERT_THAT(cluster().coordinator_->assumed_terminated(), SizeIs(1));
  cluster()["w1"].training.failure = "what it knew";
  cluster().Meet("w1");
  EXPECT_EQ(cluster().Look().training.failure, "") << "the others have not synced without it";
  cluster().Settle();
  cluster().Advance(absl::Seconds(1));
  EXPECT_EQ(cluster().Look().training.failure, "what it knew");
}

// Progress and settings.

TEST_F(Telling, HowFarItIsIsToldWhenTheLedgersAreKnownAndNotForgottenInARestore) {
  cluster_.emplace(1, 1);
  cluster().Start("w0");
  cluster().Settle();
  EXPECT_EQ(cluster().Look().settled_step, -1);
  cluster().Start("s0");
  cluster().Settle();
  EXPECT_EQ(cluster().Look().settled_step, 0);
  cluster().Work("w0");
  cluster().Settle();
  cluster().Work("w0", 1);
  cluster().Settle();
  ASSERT_EQ(cluster().Look().settled_step, 1);
  cluster().saved_.Add(kFirstValues);
  cluster().Kill("s0");
  cluster().Start("s0");
  cluster().Meet("s0");
  ASSERT_TRUE(cluster().coordinator_->view()->groups[0].restore);
  EXPECT_EQ(cluster().Look().settled_step, 1) << "what the restore costs is not known yet";
  cluster().Settle();
  EXPECT_EQ(cluster().Look().settled_step, 0);
}

TEST_F(Telling, SettingsAreThoseThatAllOfTheViewHave) {
  EXPECT_EQ(Cluster(1, 1).Look().settings_generation, 0);
  Begin(2, 1);
  cluster()["w0"].settings_generation = 3;
  cluster()["w1"].settings_generation = 2;
  cluster()["s0"].settings_generation = 4;
  cluster().Settle();
  EXPECT_EQ(cluster().Look().settings_generation, 2);
  cluster().AddPod("w", kWorkerRole, 2);
  cluster().Want();
  cluster().Start("w2").samples = kSamples - 1;  // not admitted
  cluster().Settle();
  EXPECT_EQ(cluster().Look().settings_generation, 2);
}

// Checkpoints.

TEST_F(Telling, TheFirstBatchIsWorthACheckpoint) {
  Begin(1, 1);
  Ask("now");
  cluster().Advance(absl::Seconds(0.2));
  EXPECT_EQ(cluster()["s0"].checkpoint_turn, 0) << "there are only the first values";
  cluster().Work("w0", 1);
  cluster().Advance(absl::Seconds(0.2));
  EXPECT_GT(cluster()["s0"].checkpoint_turn, 0);
}

TEST_F(Telling, ARequestIsAnsweredWhenTheLastServerHasSavedAndNotBefore) {
  Begin(1, 2);
  cluster().Work("w0", 1);
  cluster()["s1"].saves = false;
  Ask("now");
  cluster().Advance(absl::Seconds(0.2));
  EXPECT_GT(cluster()["s0"].checkpoint_turn, 0);
  EXPECT_EQ(cluster().Look().checkpoint_request, "");
  cluster()["s1"].saves = true;
  cluster().Advance(absl::Seconds(0.2));
  EXPECT_EQ(cluster().Look().checkpoint_request, "now");
}

TEST_F(Telling, TheNextCheckpointComesAnIntervalAfterTheLast) {
  Begin(1, 1);
  cluster().desired_.checkpoint_interval_ms = 1000;
  cluster().Want();
  cluster().Work("w0", 1);
  cluster().Advance(absl::Seconds(1.2));
  const std::int64_t first = cluster()["s0"].checkpoint_turn;
  ASSERT_GT(first, 0);
  cluster().Work("w0", 1);
  cluster().Advance(absl::Seconds(0.5));
  EXPECT_EQ(cluster()["s0"].checkpoint_turn, first);
  cluster().Work("w0", 1);
  cluster().Advance(absl::Seconds(1));
  EXPECT_GT(cluster()["s0"].checkpoint_turn, first);
}

TEST_F(Telling, WhileTheViewDoesNotRunNobodyIsAskedToSave) {
  Begin(1, 2);
  cluster().Work("w0", 1);
  cluster().Settle();
  cluster()["s0"].broken = true;
  cluster().Report("s0");
  const auto asked = [&] { return cluster().coordinator_->DirectiveFor("uid-s0").checkpoint_turn; };
  Ask("now");
  EXPECT_EQ(asked(), 0);
  cluster()["s0"].broken = false;
  cluster().Report("s0");
  EXPECT_GT(asked(), 0);
}

TEST_F(Telling, OnlyWhatServersHaveSavedIsToldWithTheStepOfItsRound) {
  Begin(1, 2);
  cluster()["w0"].training = Progress(3);
  cluster()["s0"].training = Checkpoint("file:///x");
  cluster()["s1"].training = Progress(9);
  cluster().Settle();
  EXPECT_FALSE(Told().has_checkpoint()) << "which step it is of is not known";
  cluster().Work("w0", 1);
  Ask("now");
  cluster().Advance(absl::Seconds(0.2));
  EXPECT_EQ(Told().checkpoint().uri(), "file:///x");
  EXPECT_EQ(Told().checkpoint().step(), 1);
  EXPECT_EQ(Told().progress().epoch(), 3) << "beside what the worker says";
  cluster()["s1"].training.bytes = Checkpoint("file:///y").bytes + "\xff";
  cluster().Settle();
  EXPECT_EQ(Told().checkpoint().uri(), "file:///x") << "what is damaged is not believed";
  cluster()["s0"].training = {};
  cluster().Settle();
  EXPECT_FALSE(Told().has_checkpoint() && Told().checkpoint().uri().empty()) << "no empty one";
}

TEST_F(Telling, ACheckpointOfTheFirstValuesIsOne) {
  cluster_.emplace(Cluster::Running(1, 1));
  cluster()["s0"].training = Checkpoint("file:///x");
  Halt();
  EXPECT_FALSE(Told().has_checkpoint());
  cluster().Work("w0");
  cluster().Settle();
  ASSERT_TRUE(cluster().Look().stopped);
  ASSERT_EQ(cluster().Look().settled_step, 0);
  EXPECT_EQ(Told().checkpoint().uri(), "file:///x");
}

// Halting.

TEST_F(Telling, EveryHaltIsSavedAnew) {
  Begin(1, 2);
  Halt();
  cluster().Work("w0");
  cluster().Settle();
  ASSERT_TRUE(cluster().Look().stopped);
  const std::int64_t first = cluster()["s0"].checkpoint_turn;
  Halt(false);
  ASSERT_FALSE(cluster().Look().stopped);
  cluster().Work("w0", 1);
  cluster().Settle();
  cluster()["s1"].saves = false;
  Halt();
  cluster().Work("w0");
  cluster().Settle();
  EXPECT_GT(cluster()["s0"].checkpoint_turn, first);
  EXPECT_FALSE(cluster().Look().stopped) << "a server has not saved";
  cluster()["s1"].saves = true;
  cluster().Settle();
  EXPECT_TRUE(cluster().Look().stopped);
}

TEST_F(Telling, AHaltIsNotSavedWhileTheViewDoesNotRun) {
  Begin(1, 2);
  cluster().Work("w0");
  cluster().Settle();
  Halt();
  cluster().muted_ = {"w0", "s0", "s1"};
  cluster().Work("w0");
  cluster().muted_.clear();
  cluster()["s1"].broken = true;
  for (const char* name : {"s1", "s0", "w0"}) cluster().Report(name);
  const auto asked = [&] { return cluster().coordinator_->DirectiveFor("uid-s0").checkpoint_turn; };
  EXPECT_EQ(asked(), 0);
  cluster()["s1"].broken = false;
  cluster().Report("s1");
  EXPECT_GT(asked(), 0);
}

TEST_F(Telling, WhenAllServersAreAskedToGoNothingMoreIsGivenOut) {
  Begin(1, 2);
  cluster().muted_ = {"s1"};  // it is slow to save
  for (const char* name : {"s0", "s1"}) cluster().PodOf(name).state = PodState::kDraining;
  cluster().Want();
  const std::size_t held = cluster()["w0"].held.size();
  ASSERT_GT(held, 0U);
  cluster().Work("w0", 1);
  cluster().Settle();
  EXPECT_EQ(cluster()["w0"].held.size(), held - 1);
}

TEST_F(Telling, WithTooFewNothingMoreIsGivenOutAndWhoIsMissingIsToldButAHaltEndsWhatIsBegun) {
  pb::TrainingJobSpec spec = Spec();
  spec.mutable_dataset()->set_global_batch_size(4);
  pb::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_samples_per_push(1);
  server.mutable_consistency()->mutable_bulk_synchronous();
  cluster_.emplace(Cluster::Running(2, 2, spec));
  cluster().Work("w0");
  cluster().Settle();
  cluster().desired_.min_servers = 2;
  cluster().Want();
  cluster().Kill("s1");
  cluster().Kill("w1");
  cluster().Advance(absl::Seconds(3));
  ASSERT_THAT(cluster().coordinator_->view()->servers(), SizeIs(1));
  EXPECT_THAT(
      cluster().Look().waiting,
      HasSubstr("1 workers and 1 parameter servers are there, at least 1 and 2 are needed"));
  const std::size_t held = cluster()["w0"].held.size();
  cluster().Work("w0", 1);
  cluster().Settle();
  EXPECT_EQ(cluster()["w0"].held.size(), held - 1) << "what the other had stays open";
  Halt();
  EXPECT_GT(cluster()["w0"].held.size(), held - 1);
  EXPECT_THAT(cluster().Look().waiting, Not(HasSubstr("are needed")));
}

// Losses.

TEST_F(Telling, AFailureIsForgottenOnceABatchIsDone) {
  Begin(3, 2);
  Fail("w2");
  for (const char* name : {"w0", "w1", "w2"}) cluster().Work(name, 1);
  cluster().Settle();
  Fail("w2");
  EXPECT_THAT(cluster().coordinator_->view()->workers(), SizeIs(3)) << "it is the first again";
  Fail("w2");
  EXPECT_THAT(cluster().coordinator_->view()->workers(), SizeIs(2));
}

TEST_F(Telling, ALossIsOverOnceAndNotBeforeAViewGoesOnWithoutTheLost) {
  Begin(2, 1);
  cluster().Work("w0", 1);
  cluster().Settle();
  cluster().desired_.min_workers = 2;
  cluster().Want();
  cluster().Kill("w1");
  cluster().Advance(absl::Seconds(0.2));
  cluster().Work("w0", 1);
  cluster().Advance(absl::Seconds(0.2));
  cluster().desired_.min_workers = 1;
  cluster().Want();
  cluster().Settle();
  while (!Incident().recovery && cluster().Work("w0", 1) > 0) cluster().Advance(absl::Seconds(0.1));
  const std::optional<absl::Duration> recovery = Incident().recovery;
  ASSERT_TRUE(recovery);
  EXPECT_THAT(Incident().message, EndsWith("go on")) << "nothing is done again";
  cluster().Advance(absl::Seconds(1));
  EXPECT_EQ(Incident().recovery, recovery);
}

TEST_F(Telling, ARestoreThatCostsOneBatchSaysSo) {
  Begin(1, 1);
  for (Lease lease = 1; lease <= 2; ++lease) cluster().saved_.Add(lease);
  for (int i = 0; i < 2; ++i) {
    cluster().Work("w0", 1);
    cluster().Settle();
  }
  cluster().Kill("s0");
  cluster().Start("s0");
  cluster().Settle();
  EXPECT_EQ(Incident().repeated_steps, 1);
  EXPECT_THAT(Incident().message, EndsWith("; 1 batch is done again"));
  EXPECT_FALSE(Incident().recovery) << "none is done yet";
  cluster().Work("w0", 1);
  cluster().Settle();
  EXPECT_TRUE(Incident().recovery);
}

}  // namespace
}  // namespace starling::parameter_server
