// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "trainer/testing/worker_cluster.h"

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
    Cluster cluster(spec, NewJobDir());
    std::vector<int> members;
    members.reserve(static_cast<size_t>(workers));
    for (int i = 0; i < workers; ++i) members.push_back(cluster.Add());
    cluster.PublishNow(members);
    return cluster.AwaitModel(0);
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
  Cluster cluster(Fast(kSteps), folder);
  cluster.Add();

  cluster.PublishNow({0});

  ASSERT_THAT(cluster.AwaitModel(0), Ne(""));
  const v1alpha1::TrainingReport training = cluster.TrainingOf(0);
  EXPECT_EQ(training.result().steps(), kSteps);
  EXPECT_EQ(training.result().samples(), kSteps / 4 * 100);
  EXPECT_EQ(training.result().epochs(), kSteps / 4);
  EXPECT_GT(training.result().metrics().at("validation/accuracy"), 0.5);
  EXPECT_EQ(training.progress().step(), kSteps);
  EXPECT_EQ(training.progress().total_steps(), kSteps);
  EXPECT_TRUE(std::filesystem::exists(folder + "/model.safetensors"));
  EXPECT_EQ(cluster.ReportOf(0).phase, Phase::kDone);
}

TEST_F(WorkerTest, KeepsTheModelWhereTheCheckpointsAreKept) {
  const std::string folder = NewJobDir();
  const std::string kept = NewJobDir();
  v1alpha1::TrainingJobSpec spec = Fast(kSteps);
  spec.mutable_checkpoint()->set_uri("file://" + kept);
  Cluster cluster(spec, folder);
  cluster.Add();

  cluster.PublishNow({0});

  ASSERT_THAT(cluster.AwaitModel(0), Ne(""));
  EXPECT_EQ(cluster.TrainingOf(0).result().model().uri(),
            absl::StrCat("file://", kept, "/job/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(kept + "/job/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/model.safetensors"));
}

TEST_F(WorkerTest, EndsWhenTheCoordinatorSaysThatTheResultIsKnown) {
  Cluster cluster(Fast(kSteps), NewJobDir());
  cluster.Add();
  cluster.PublishNow({0});
  ASSERT_THAT(cluster.AwaitModel(0), Ne(""));

  cluster.FinishAll();

  ASSERT_TRUE(cluster.AwaitEnd(0));
  EXPECT_TRUE(cluster.EndOf(0).ok());
}

TEST_F(WorkerTest, AnAuditThatCannotBeWrittenKeepsNobodyFromTraining) {
  const std::string folder = NewJobDir();
  std::ofstream(folder + "/audit") << "a file where a folder should be";
  Cluster cluster(Fast(20), folder);
  cluster.Add();
  cluster.PublishNow({0});
  EXPECT_THAT(cluster.AwaitModel(0), Ne(""));
}

TEST_F(WorkerTest, WritesOneAuditLineForEveryStep) {
  const std::string folder = NewJobDir();
  Cluster cluster(Fast(kSteps), folder);
  cluster.Add();
  cluster.Add();

  cluster.PublishNow({0, 1});

  ASSERT_THAT(cluster.AwaitModel(0), Ne(""));
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
  Cluster cluster(TinyJob(kSteps), folder);
  for (int i = 0; i < 3; ++i) cluster.Add();
  cluster.PublishNow({0, 1, 2});
  ASSERT_TRUE(cluster.AwaitStep(0, 10));

  cluster.Crash(0);  // the first member: audit and checkpoints move on
  ASSERT_TRUE(cluster.AwaitPhase(1, Phase::kAborted));
  ASSERT_TRUE(cluster.AwaitPhase(2, Phase::kAborted));
  cluster.PublishNow({1, 2});

  EXPECT_EQ(cluster.AwaitModel(1), ModelOf(Fast(kSteps), 1));
  EXPECT_EQ(LinesOf(folder + "/audit/steps.jsonl").size(), static_cast<size_t>(kSteps));
}

TEST_F(WorkerTest, ANewViewEndsAWaitForASilentMember) {
  Cluster cluster(TinyJob(kSteps), NewJobDir());
  for (int i = 0; i < 3; ++i) cluster.Add();
  cluster.PublishNow({0, 1});
  ASSERT_TRUE(cluster.AwaitStep(0, 5));
  cluster.CutOff(2);

  cluster.PublishNow({0, 1, 2});  // 2 never opens its links
  ASSERT_TRUE(cluster.AwaitPhase(0, Phase::kSync));
  cluster.PublishNow({0, 1});

  EXPECT_EQ(cluster.AwaitModel(0), ModelOf(Fast(kSteps), 1));
}

TEST_F(WorkerTest, AJoinerIsFedBySurvivorsAtABoundary) {
  Cluster cluster(TinyJob(kSteps), NewJobDir());
  cluster.Add();
  cluster.Add();
  cluster.PublishNow({0, 1});
  ASSERT_TRUE(cluster.AwaitStep(0, 5));
  cluster.Add();

  cluster.PublishAtBoundary({0, 1, 2});

  ASSERT_TRUE(cluster.AwaitPhase(2, Phase::kRun));
  EXPECT_GE(cluster.ReportOf(2).state->step, 5);
  EXPECT_EQ(cluster.AwaitModel(0), ModelOf(Fast(kSteps), 1));
  EXPECT_EQ(cluster.ReportOf(2).state->step, kSteps);
}

TEST_F(WorkerTest, ALeaverLingersUntilItIsReleased) {
  Cluster cluster(TinyJob(kSteps), NewJobDir());
  cluster.Add();
  cluster.Add();
  cluster.PublishNow({0, 1});
  ASSERT_TRUE(cluster.AwaitStep(0, 5));
  cluster.Terminate(1);
  ASSERT_TRUE(cluster.Await([&] { return cluster.ReportOf(1).leaving; }));

  cluster.PublishAtBoundary({0});
  ASSERT_TRUE(cluster.AwaitPhase(1, Phase::kLinger));
  // As the coordinator does it: the view that goes on must be synced, or the last bytes of the old
  // one may end with the leaver.
  const auto synced = [&] {
    const membership::Report report = cluster.ReportOf(0);
    return report.state && report.state->view > cluster.ReportOf(1).state->view;
  };
  ASSERT_TRUE(cluster.Await(synced));
  cluster.Release(1);

  EXPECT_TRUE(cluster.AwaitEnd(1));
  EXPECT_EQ(cluster.AwaitModel(0), ModelOf(Fast(kSteps), 1));
}

TEST_F(WorkerTest, HaltsWithACheckpointAndGoesOnFromIt) {
  const std::string folder = NewJobDir();
  v1alpha1::TrainingJobSpec spec = TinyJob(kForever);
  int64_t stopped_at = 0;
  {
    Cluster cluster(spec, folder);
    cluster.Add();
    cluster.Add();
    cluster.PublishNow({0, 1});
    ASSERT_TRUE(cluster.AwaitStep(0, 10));

    cluster.SetSettings(spec.stop(), /*halt=*/true);

    ASSERT_TRUE(
        cluster.Await([&] { return cluster.ReportOf(0).stopped && cluster.ReportOf(1).stopped; }));
    stopped_at = cluster.ReportOf(0).state->step;
    EXPECT_EQ(cluster.TrainingOf(0).checkpoint().step(), stopped_at);
  }
  const int64_t end = stopped_at + 50;
  spec.mutable_stop()->set_steps(end);

  Cluster cluster(spec, folder);
  cluster.SetIncarnation(2);
  cluster.Add();
  cluster.Add();
  cluster.Add();
  cluster.SetSettings(spec.stop(), /*halt=*/true);  // generation 1, as in the checkpoint
  cluster.SetSettings(spec.stop(), /*halt=*/false);
  cluster.PublishNow({0, 1, 2}, /*restore=*/true);

  EXPECT_EQ(cluster.AwaitModel(0), ModelOf(Fast(end), 1));
  EXPECT_EQ(LinesOf(folder + "/audit/steps.jsonl").size(), static_cast<size_t>(end));
}

bool TrainAloneTo(Cluster& cluster, int64_t step) {
  cluster.Add();
  cluster.PublishNow({0});
  return cluster.AwaitStep(0, step);
}

// Whoever is told that it has stopped may end it at once. Asked without a pause: the first report
// that says so counts.
TEST_F(WorkerTest, WhoSaysThatItHasStoppedNamesTheCheckpointOfIt) {
  for (int round = 0; round < 30; ++round) {
    const v1alpha1::TrainingJobSpec spec = TinyJob(kForever);
    Cluster cluster(spec, NewJobDir());
    ASSERT_TRUE(TrainAloneTo(cluster, 5 + round));
    cluster.SetSettings(spec.stop(), /*halt=*/true);
    const net::Deadline deadline = net::Deadline::After(absl::Seconds(20));
    membership::Report report;
    do {
      report = cluster.ReportOf(0);
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
    Cluster cluster(spec, NewJobDir());
    ASSERT_TRUE(TrainAloneTo(cluster, 5 + round));
    cluster.AskForCheckpoint();
    ASSERT_TRUE(cluster.AwaitStep(0, cluster.ReportOf(0).state->step + 1 + round % 3));
    cluster.SetSettings(spec.stop(), /*halt=*/true);
    ASSERT_TRUE(cluster.Await([&] { return cluster.ReportOf(0).stopped; })) << "round " << round;
    ASSERT_EQ(cluster.TrainingOf(0).checkpoint().step(), cluster.ReportOf(0).state->step);
  }
}

TEST_F(WorkerTest, ACheckpointIsWrittenAtItsTurn) {
  Cluster cluster(TinyJob(kForever), NewJobDir());
  cluster.Add();
  cluster.Add();
  cluster.PublishNow({0, 1});

  cluster.AskForCheckpoint();

  ASSERT_TRUE(cluster.Await([&] { return cluster.ReportOf(0).checkpoint_turn == 1; }));
  EXPECT_THAT(cluster.TrainingOf(0).checkpoint().uri(), HasSubstr("/checkpoints/0000000001-"));
}

TEST_F(WorkerTest, AllWorkersKilledTheJobGoesOnFromTheNewestCheckpoint) {
  const std::string folder = NewJobDir();
  int64_t written = 0;
  {
    Cluster cluster(TinyJob(kForever), folder);
    cluster.Add();
    cluster.PublishNow({0});
    cluster.AskForCheckpoint();
    ASSERT_TRUE(cluster.Await([&] { return cluster.ReportOf(0).checkpoint_turn == 1; }));
    written = cluster.TrainingOf(0).checkpoint().step();
    ASSERT_TRUE(cluster.AwaitStep(0, written + 5));  // and some steps are lost
    cluster.Crash(0);
  }
  const int64_t end = written + 50;
  Cluster cluster(TinyJob(end), folder);
  cluster.SetIncarnation(2);
  cluster.Add();
  cluster.Add();
  cluster.PublishNow({0, 1}, /*restore=*/true);

  EXPECT_EQ(cluster.AwaitModel(0), ModelOf(Fast(end), 1));
  EXPECT_EQ(LinesOf(folder + "/audit/steps.jsonl").size(), static_cast<size_t>(end));
}

TEST_F(WorkerTest, StopsWhenTheTargetIsMet) {
  v1alpha1::TrainingJobSpec spec = Fast(100'000);
  spec.mutable_stop()->mutable_target()->set_metric("validation/accuracy");
  spec.mutable_stop()->mutable_target()->set_at_least(0.5);
  Cluster cluster(spec, NewJobDir());
  cluster.Add();
  cluster.Add();

  cluster.PublishNow({0, 1});

  ASSERT_THAT(cluster.AwaitModel(0), Ne(""));
  const v1alpha1::Result result = cluster.TrainingOf(0).result();
  EXPECT_TRUE(result.target_reached());
  EXPECT_THAT(result.steps(), Lt(1000));
  EXPECT_EQ(result.steps() % 4, 0);  // an epoch's end
  EXPECT_GE(result.metrics().at("validation/accuracy"), 0.5);
}

TEST_F(WorkerTest, AnUnmetTargetStillGivesAResult) {
  v1alpha1::TrainingJobSpec spec = Fast(4);
  spec.mutable_stop()->mutable_target()->set_metric("validation/loss");
  spec.mutable_stop()->mutable_target()->set_at_most(1e-9);
  Cluster cluster(spec, NewJobDir());
  cluster.Add();

  cluster.PublishNow({0});

  ASSERT_THAT(cluster.AwaitModel(0), Ne(""));
  EXPECT_FALSE(cluster.TrainingOf(0).result().target_reached());
}

TEST_F(WorkerTest, KeepsTheParametersOfTheBestValidationAndStopsWhenPatienceEnds) {
  v1alpha1::TrainingJobSpec spec = Fast(100'000);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(2);  // it wanders
  spec.mutable_validation()->set_keep_best(true);
  spec.mutable_validation()->set_patience(3);
  Cluster cluster(spec, NewJobDir());
  cluster.Add();
  cluster.Add();

  cluster.PublishNow({0, 1});

  const std::string model = cluster.AwaitModel(0);
  ASSERT_THAT(model, Ne(""));
  const v1alpha1::TrainingReport training = cluster.TrainingOf(0);
  EXPECT_THAT(training.result().metrics().at("validation/loss"),
              Lt(training.progress().metrics().at("validation/loss")));
  spec.mutable_validation()->set_keep_best(false);
  EXPECT_NE(ModelOf(spec, 2), model);  // the newest are others
}

TEST_F(WorkerTest, AMutableStopActsAtABoundary) {
  v1alpha1::TrainingJobSpec spec = TinyJob(kForever);
  Cluster cluster(spec, NewJobDir());
  cluster.Add();
  cluster.Add();
  cluster.PublishNow({0, 1});
  ASSERT_TRUE(cluster.AwaitStep(0, 5));

  const int64_t end = cluster.ReportOf(0).settled_step + 500;
  spec.mutable_stop()->set_steps(end);
  cluster.SetSettings(spec.stop(), /*halt=*/false);

  ASSERT_THAT(cluster.AwaitModel(0), Ne(""));
  EXPECT_EQ(cluster.TrainingOf(0).result().steps(), end);
}

TEST_F(WorkerTest, DivergenceIsTheJobsFailureOnEveryWorker) {
  v1alpha1::TrainingJobSpec spec = Fast(1000);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1e38);
  Cluster cluster(spec, NewJobDir());
  cluster.Add();
  cluster.Add();

  cluster.PublishNow({0, 1});

  for (int worker : {0, 1}) {
    ASSERT_TRUE(cluster.AwaitEnd(worker));
    EXPECT_FALSE(cluster.EndOf(worker).ok());
    EXPECT_THAT(cluster.TrainingOf(worker).failure(), HasSubstr("not a finite number"));
    EXPECT_THAT(cluster.TrainingOf(worker).failure(), HasSubstr("learningRate"));
  }
}

// It would come again in every view.
TEST_F(WorkerTest, AnErrorOfAStepThatIsNotTheMeshsIsTheJobsFailure) {
  v1alpha1::TrainingJobSpec spec = Fast(1000);
  spec.set_reproducible(false);
  spec.mutable_exchange()->mutable_none();
  Cluster cluster(spec, NewJobDir());
  cluster.Add();
  cluster.Add();
  cluster.PublishNow({0, 1});
  for (int worker : {0, 1}) {
    ASSERT_TRUE(cluster.AwaitEnd(worker));
    EXPECT_THAT(cluster.TrainingOf(worker).failure(), HasSubstr("its view has 2 workers"));
  }
}

TEST_F(WorkerTest, ACheckpointOfAnotherModelIsRefusedWithTheTensorsName) {
  const std::string folder = NewJobDir();
  v1alpha1::TrainingJobSpec spec = TinyJob(kSteps);
  {
    Cluster cluster(spec, folder);
    cluster.Add();
    cluster.PublishNow({0});
    ASSERT_THAT(cluster.AwaitModel(0), Ne(""));
  }
  spec.mutable_optimizer()->mutable_adam()->set_learning_rate(0.1);  // other shards
  Cluster cluster(spec, folder);
  cluster.SetIncarnation(2);
  cluster.Add();
  cluster.PublishNow({0}, /*restore=*/true);

  ASSERT_TRUE(cluster.AwaitEnd(0));
  EXPECT_THAT(cluster.TrainingOf(0).failure(),
              HasSubstr("part optimizer/mean/bias is missing: it belongs to another model"));
}

}  // namespace
}  // namespace starling::worker
