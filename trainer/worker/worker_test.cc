// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "trainer/testing/worker_flock.h"

namespace starling::worker {
namespace {

using membership::Phase;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Ne;

// Long enough that a test on a busy machine is not overtaken by the end of training.
constexpr int64_t kSteps = 400;
constexpr int64_t kForever = 10'000'000;

class WorkerTest : public ::testing::Test {
 protected:
  // A new folder for each job.
  std::string NewJobDir() {
    std::string path =
        absl::StrCat(::testing::TempDir(), "worker_test_", getpid(), "_", folders_.size());
    std::filesystem::create_directories(path);
    folders_.push_back(path);
    return path;
  }
  ~WorkerTest() override {
    for (const std::string& folder : folders_) std::filesystem::remove_all(folder);
  }

  // The model of an undisturbed run of `workers` workers.
  std::string ModelOf(const v1alpha1::TrainingJobSpec& spec, int workers) {
    Flock flock(spec, NewJobDir());
    std::vector<int> members;
    members.reserve(static_cast<size_t>(workers));
    for (int i = 0; i < workers; ++i) members.push_back(flock.Add());
    flock.PublishNow(members);
    return flock.AwaitModel(0);
  }

  std::vector<std::string> folders_;
};

v1alpha1::TrainingJobSpec Fast(int64_t steps) {
  v1alpha1::TrainingJobSpec spec = TinyJob(steps);
  spec.mutable_experiment()->clear_step_delay();
  return spec;
}

std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST_F(WorkerTest, TrainsAloneToTheEnd) {
  const std::string folder = NewJobDir();
  Flock flock(Fast(kSteps), folder);
  flock.Add();

  flock.PublishNow({0});

  ASSERT_THAT(flock.AwaitModel(0), Ne(""));
  const v1alpha1::TrainingReport training = flock.TrainingOf(0);
  EXPECT_EQ(training.result().steps(), kSteps);
  EXPECT_EQ(training.result().samples(), kSteps / 4 * 100);
  EXPECT_EQ(training.result().epochs(), kSteps / 4);
  EXPECT_GT(training.result().metrics().at("validation/accuracy"), 0.5);
  EXPECT_EQ(training.progress().step(), kSteps);
  EXPECT_EQ(training.progress().total_steps(), kSteps);
  EXPECT_TRUE(std::filesystem::exists(folder + "/model.safetensors"));
  EXPECT_EQ(flock.ReportOf(0).phase, Phase::kDone);
}

TEST_F(WorkerTest, KeepsTheModelWhereTheCheckpointsAreKept) {
  const std::string folder = NewJobDir();
  const std::string kept = NewJobDir();
  v1alpha1::TrainingJobSpec spec = Fast(kSteps);
  spec.mutable_checkpoint()->set_uri("file://" + kept);
  Flock flock(spec, folder);
  flock.Add();

  flock.PublishNow({0});

  ASSERT_THAT(flock.AwaitModel(0), Ne(""));
  EXPECT_EQ(flock.TrainingOf(0).result().model().uri(),
            absl::StrCat("file://", kept, "/job/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(kept + "/job/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/model.safetensors"));
}

TEST_F(WorkerTest, EndsWhenTheCoordinatorSaysThatTheResultIsKnown) {
  Flock flock(Fast(kSteps), NewJobDir());
  flock.Add();
  flock.PublishNow({0});
  ASSERT_THAT(flock.AwaitModel(0), Ne(""));

  flock.FinishAll();

  ASSERT_TRUE(flock.AwaitEnd(0));
  EXPECT_TRUE(flock.EndOf(0).ok());
}

TEST_F(WorkerTest, AnAuditThatCannotBeWrittenKeepsNobodyFromTraining) {
  const std::string folder = NewJobDir();
  std::ofstream(folder + "/audit") << "a file where a folder should be";
  Flock flock(Fast(20), folder);
  flock.Add();
  flock.PublishNow({0});
  EXPECT_THAT(flock.AwaitModel(0), Ne(""));
}

TEST_F(WorkerTest, WritesOneAuditLineForEveryStep) {
  const std::string folder = NewJobDir();
  Flock flock(Fast(kSteps), folder);
  flock.Add();
  flock.Add();

  flock.PublishNow({0, 1});

  ASSERT_THAT(flock.AwaitModel(0), Ne(""));
  const std::vector<std::string> lines = LinesOf(folder + "/audit/steps.jsonl");
  ASSERT_EQ(lines.size(), static_cast<size_t>(kSteps));
  EXPECT_THAT(lines.back(), HasSubstr(R"("step":400)"));
}

TEST_F(WorkerTest, GivesTheSameModelBitByBitForAnyNumberOfWorkers) {
  const std::string alone = ModelOf(Fast(kSteps), 1);
  ASSERT_THAT(alone, Ne(""));

  EXPECT_EQ(ModelOf(Fast(kSteps), 2), alone);
  EXPECT_EQ(ModelOf(Fast(kSteps), 3), alone);
  EXPECT_EQ(ModelOf(Fast(kSteps), 4), alone);

  v1alpha1::TrainingJobSpec other = Fast(kSteps);
  other.set_seed(8);
  EXPECT_NE(ModelOf(other, 1), alone);
}

TEST_F(WorkerTest, WithoutReproducibleModeTheNumberOfWorkersShowsInTheBits) {
  v1alpha1::TrainingJobSpec spec = Fast(kSteps);
  spec.set_reproducible(false);

  EXPECT_NE(ModelOf(spec, 1), ModelOf(spec, 3));
  EXPECT_EQ(ModelOf(spec, 3), ModelOf(spec, 3));
}

TEST_F(WorkerTest, SurvivorsGoOnAfterACrashWithTheSameResult) {
  const std::string folder = NewJobDir();
  Flock flock(TinyJob(kSteps), folder);
  for (int i = 0; i < 3; ++i) flock.Add();
  flock.PublishNow({0, 1, 2});
  ASSERT_TRUE(flock.AwaitStep(0, 10));

  flock.Crash(0);  // the first member: audit and checkpoints move on
  ASSERT_TRUE(flock.AwaitPhase(1, Phase::kAborted));
  ASSERT_TRUE(flock.AwaitPhase(2, Phase::kAborted));
  flock.PublishNow({1, 2});

  EXPECT_EQ(flock.AwaitModel(1), ModelOf(Fast(kSteps), 1));
  EXPECT_EQ(LinesOf(folder + "/audit/steps.jsonl").size(), static_cast<size_t>(kSteps));
}

TEST_F(WorkerTest, ANewViewEndsAWaitForASilentMember) {
  Flock flock(TinyJob(kSteps), NewJobDir());
  for (int i = 0; i < 3; ++i) flock.Add();
  flock.PublishNow({0, 1});
  ASSERT_TRUE(flock.AwaitStep(0, 5));
  flock.CutOff(2);

  flock.PublishNow({0, 1, 2});  // 2 never opens its links
  ASSERT_TRUE(flock.AwaitPhase(0, Phase::kSync));
  flock.PublishNow({0, 1});

  EXPECT_EQ(flock.AwaitModel(0), ModelOf(Fast(kSteps), 1));
}

TEST_F(WorkerTest, AJoinerIsFedBySurvivorsAtABoundary) {
  Flock flock(TinyJob(kSteps), NewJobDir());
  flock.Add();
  flock.Add();
  flock.PublishNow({0, 1});
  ASSERT_TRUE(flock.AwaitStep(0, 5));
  flock.Add();

  flock.PublishAtBoundary({0, 1, 2});

  ASSERT_TRUE(flock.AwaitPhase(2, Phase::kRun));
  EXPECT_GE(flock.ReportOf(2).state->step, 5);
  EXPECT_EQ(flock.AwaitModel(0), ModelOf(Fast(kSteps), 1));
  EXPECT_EQ(flock.ReportOf(2).state->step, kSteps);
}

TEST_F(WorkerTest, ALeaverLingersUntilItIsReleased) {
  Flock flock(TinyJob(kSteps), NewJobDir());
  flock.Add();
  flock.Add();
  flock.PublishNow({0, 1});
  ASSERT_TRUE(flock.AwaitStep(0, 5));
  flock.Terminate(1);
  ASSERT_TRUE(flock.Await([&] { return flock.ReportOf(1).leaving; }));

  flock.PublishAtBoundary({0});
  ASSERT_TRUE(flock.AwaitPhase(1, Phase::kLinger));
  // As the coordinator does it: the view that goes on must be synced, or the last bytes of the old
  // one may end with the leaver.
  const auto synced = [&] {
    const membership::Report report = flock.ReportOf(0);
    return report.state && report.state->view > flock.ReportOf(1).state->view;
  };
  ASSERT_TRUE(flock.Await(synced));
  flock.Release(1);

  EXPECT_TRUE(flock.AwaitEnd(1));
  EXPECT_EQ(flock.AwaitModel(0), ModelOf(Fast(kSteps), 1));
}

TEST_F(WorkerTest, HaltsWithACheckpointAndGoesOnFromIt) {
  const std::string folder = NewJobDir();
  v1alpha1::TrainingJobSpec spec = TinyJob(kForever);
  int64_t stopped_at = 0;
  {
    Flock flock(spec, folder);
    flock.Add();
    flock.Add();
    flock.PublishNow({0, 1});
    ASSERT_TRUE(flock.AwaitStep(0, 10));

    flock.SetSettings(spec.stop(), /*halt=*/true);

    ASSERT_TRUE(
        flock.Await([&] { return flock.ReportOf(0).stopped && flock.ReportOf(1).stopped; }));
    stopped_at = flock.ReportOf(0).state->step;
    EXPECT_EQ(flock.TrainingOf(0).checkpoint().step(), stopped_at);
  }
  const int64_t end = stopped_at + 50;
  spec.mutable_stop()->set_steps(end);

  Flock flock(spec, folder);
  flock.SetIncarnation(2);
  flock.Add();
  flock.Add();
  flock.Add();
  flock.SetSettings(spec.stop(), /*halt=*/true);  // generation 1, as in the checkpoint
  flock.SetSettings(spec.stop(), /*halt=*/false);
  flock.PublishNow({0, 1, 2}, /*restore=*/true);

  EXPECT_EQ(flock.AwaitModel(0), ModelOf(Fast(end), 1));
  EXPECT_EQ(LinesOf(folder + "/audit/steps.jsonl").size(), static_cast<size_t>(end));
}

bool TrainAloneTo(Flock& flock, int64_t step) {
  flock.Add();
  flock.PublishNow({0});
  return flock.AwaitStep(0, step);
}

// Whoever is told that it has stopped may end it at once. Asked without a pause: the first report
// that says so counts.
TEST_F(WorkerTest, WhoSaysThatItHasStoppedNamesTheCheckpointOfIt) {
  for (int round = 0; round < 30; ++round) {
    const v1alpha1::TrainingJobSpec spec = TinyJob(kForever);
    Flock flock(spec, NewJobDir());
    ASSERT_TRUE(TrainAloneTo(flock, 5 + round));
    flock.SetSettings(spec.stop(), /*halt=*/true);
    const net::Deadline deadline = net::Deadline::After(absl::Seconds(20));
    membership::Report report;
    do {
      report = flock.ReportOf(0);
    } while (!report.stopped && !deadline.Expired());
    v1alpha1::TrainingReport training;
    ASSERT_TRUE(training.ParseFromString(report.training.bytes));
    ASSERT_EQ(training.checkpoint().step(), report.state->step) << "round " << round;
  }
}

// What is still being written then is older: the job's last state would be lost.
TEST_F(WorkerTest, HaltsWithACheckpointOfItsOwnThoughOneIsBeingWritten) {
  for (int round = 0; round < 30; ++round) {
    const v1alpha1::TrainingJobSpec spec = TinyJob(kForever);
    Flock flock(spec, NewJobDir());
    ASSERT_TRUE(TrainAloneTo(flock, 5 + round));
    flock.AskForCheckpoint();
    ASSERT_TRUE(flock.AwaitStep(0, flock.ReportOf(0).state->step + 1 + round % 3));
    flock.SetSettings(spec.stop(), /*halt=*/true);
    ASSERT_TRUE(flock.Await([&] { return flock.ReportOf(0).stopped; })) << "round " << round;
    ASSERT_EQ(flock.TrainingOf(0).checkpoint().step(), flock.ReportOf(0).state->step);
  }
}

TEST_F(WorkerTest, ACheckpointIsWrittenAtItsTurn) {
  Flock flock(TinyJob(kForever), NewJobDir());
  flock.Add();
  flock.Add();
  flock.PublishNow({0, 1});

  flock.AskForCheckpoint();

  ASSERT_TRUE(flock.Await([&] { return flock.ReportOf(0).checkpoint_turn == 1; }));
  EXPECT_THAT(flock.TrainingOf(0).checkpoint().uri(), HasSubstr("/checkpoints/0000000001-"));
}

TEST_F(WorkerTest, AllWorkersKilledTheJobGoesOnFromTheNewestCheckpoint) {
  const std::string folder = NewJobDir();
  int64_t written = 0;
  {
    Flock flock(TinyJob(kForever), folder);
    flock.Add();
    flock.PublishNow({0});
    flock.AskForCheckpoint();
    ASSERT_TRUE(flock.Await([&] { return flock.ReportOf(0).checkpoint_turn == 1; }));
    written = flock.TrainingOf(0).checkpoint().step();
    ASSERT_TRUE(flock.AwaitStep(0, written + 5));  // and some steps are lost
    flock.Crash(0);
  }
  const int64_t end = written + 50;
  Flock flock(TinyJob(end), folder);
  flock.SetIncarnation(2);
  flock.Add();
  flock.Add();
  flock.PublishNow({0, 1}, /*restore=*/true);

  EXPECT_EQ(flock.AwaitModel(0), ModelOf(Fast(end), 1));
  EXPECT_EQ(LinesOf(folder + "/audit/steps.jsonl").size(), static_cast<size_t>(end));
}

TEST_F(WorkerTest, StopsWhenTheTargetIsMet) {
  v1alpha1::TrainingJobSpec spec = Fast(100'000);
  spec.mutable_stop()->mutable_target()->set_metric("validation/accuracy");
  spec.mutable_stop()->mutable_target()->set_at_least(0.5);
  Flock flock(spec, NewJobDir());
  flock.Add();
  flock.Add();

  flock.PublishNow({0, 1});

  ASSERT_THAT(flock.AwaitModel(0), Ne(""));
  const v1alpha1::Result result = flock.TrainingOf(0).result();
  EXPECT_TRUE(result.target_reached());
  EXPECT_THAT(result.steps(), Lt(1000));
  EXPECT_EQ(result.steps() % 4, 0);  // an epoch's end
  EXPECT_GE(result.metrics().at("validation/accuracy"), 0.5);
}

TEST_F(WorkerTest, AnUnmetTargetStillGivesAResult) {
  v1alpha1::TrainingJobSpec spec = Fast(4);
  spec.mutable_stop()->mutable_target()->set_metric("validation/loss");
  spec.mutable_stop()->mutable_target()->set_at_most(1e-9);
  Flock flock(spec, NewJobDir());
  flock.Add();

  flock.PublishNow({0});

  ASSERT_THAT(flock.AwaitModel(0), Ne(""));
  EXPECT_FALSE(flock.TrainingOf(0).result().target_reached());
}

TEST_F(WorkerTest, KeepsTheParametersOfTheBestValidationAndStopsWhenPatienceEnds) {
  v1alpha1::TrainingJobSpec spec = Fast(100'000);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(2);  // it wanders
  spec.mutable_validation()->set_keep_best(true);
  spec.mutable_validation()->set_patience(3);
  Flock flock(spec, NewJobDir());
  flock.Add();
  flock.Add();

  flock.PublishNow({0, 1});

  const std::string model = flock.AwaitModel(0);
  ASSERT_THAT(model, Ne(""));
  const v1alpha1::TrainingReport training = flock.TrainingOf(0);
  EXPECT_THAT(training.result().metrics().at("validation/loss"),
              Lt(training.progress().metrics().at("validation/loss")));
  spec.mutable_validation()->set_keep_best(false);
  EXPECT_NE(ModelOf(spec, 2), model);  // the newest are others
}

TEST_F(WorkerTest, AMutableStopActsAtABoundary) {
  v1alpha1::TrainingJobSpec spec = TinyJob(kForever);
  Flock flock(spec, NewJobDir());
  flock.Add();
  flock.Add();
  flock.PublishNow({0, 1});
  ASSERT_TRUE(flock.AwaitStep(0, 5));

  const int64_t end = flock.ReportOf(0).settled_step + 500;
  spec.mutable_stop()->set_steps(end);
  flock.SetSettings(spec.stop(), /*halt=*/false);

  ASSERT_THAT(flock.AwaitModel(0), Ne(""));
  EXPECT_EQ(flock.TrainingOf(0).result().steps(), end);
}

TEST_F(WorkerTest, DivergenceIsTheJobsFailureOnEveryWorker) {
  v1alpha1::TrainingJobSpec spec = Fast(1000);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1e38);
  Flock flock(spec, NewJobDir());
  flock.Add();
  flock.Add();

  flock.PublishNow({0, 1});

  for (int worker : {0, 1}) {
    ASSERT_TRUE(flock.AwaitEnd(worker));
    EXPECT_FALSE(flock.EndOf(worker).ok());
    EXPECT_THAT(flock.TrainingOf(worker).failure(), HasSubstr("not a finite number"));
    EXPECT_THAT(flock.TrainingOf(worker).failure(), HasSubstr("learningRate"));
  }
}

// It would come again in every view.
TEST_F(WorkerTest, AnErrorOfAStepThatIsNotTheMeshsIsTheJobsFailure) {
  v1alpha1::TrainingJobSpec spec = Fast(1000);
  spec.set_reproducible(false);
  spec.mutable_exchange()->mutable_none();
  Flock flock(spec, NewJobDir());
  flock.Add();
  flock.Add();
  flock.PublishNow({0, 1});
  for (int worker : {0, 1}) {
    ASSERT_TRUE(flock.AwaitEnd(worker));
    EXPECT_THAT(flock.TrainingOf(worker).failure(), HasSubstr("its view has 2 workers"));
  }
}

TEST_F(WorkerTest, ACheckpointOfAnotherModelIsRefusedWithTheTensorsName) {
  const std::string folder = NewJobDir();
  v1alpha1::TrainingJobSpec spec = TinyJob(kSteps);
  {
    Flock flock(spec, folder);
    flock.Add();
    flock.PublishNow({0});
    ASSERT_THAT(flock.AwaitModel(0), Ne(""));
  }
  spec.mutable_optimizer()->mutable_adam()->set_learning_rate(0.1);  // other shards
  Flock flock(spec, folder);
  flock.SetIncarnation(2);
  flock.Add();
  flock.PublishNow({0}, /*restore=*/true);

  ASSERT_TRUE(flock.AwaitEnd(0));
  EXPECT_THAT(flock.TrainingOf(0).failure(),
              HasSubstr("part optimizer/mean/bias is missing: it belongs to another model"));
}

}  // namespace
}  // namespace starling::worker
