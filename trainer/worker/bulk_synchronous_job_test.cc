// SPDX-License-Identifier: Apache-2.0
// Whole jobs whose steps are batches in portions: whoever works them off, and however many there
// are, a step is dataset.globalBatchSize samples, and the model is the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "trainer/data/batches.h"
#include "trainer/data/dataset.h"
#include "trainer/testing/tiny_engine.h"
#include "trainer/testing/visit_job.h"

namespace starling::worker {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::SizeIs;

using BulkSynchronousJobTest = ClientWorkerTest;

// Each sample's parameters are to be 1 more for each epoch; shares of 5 of 16 are not exact.
auto Visited(float epochs) { return Each(FloatNear(epochs, 1e-3F)); }

v1alpha1::TrainingJobSpec Job(std::int64_t epochs) {
  v1alpha1::TrainingJobSpec spec = VisitJob(epochs);
  ModelOf(spec).mutable_bulk_synchronous();
  return spec;
}

TEST_F(BulkSynchronousJobTest, WhatIsReadIsAlwaysWholeBatchesOfTheStepsBefore) {
  const std::string folder = NewJobDir();
  ServerCluster cluster(Job(4), VisitData(), NewVisitEngine, folder);
  cluster.AddServers(2);
  cluster.AddWorkers(3);

  const v1alpha1::Result result = cluster.AwaitResult();

  EXPECT_EQ(result.steps(), 4 * kPerEpoch);
  EXPECT_EQ(result.samples(), 4 * kSamples);
  EXPECT_THAT(VisitsOf(result), Visited(4));
  EXPECT_THAT(LinesOf(folder + "/audit/steps.jsonl"), SizeIs(4 * kPerEpoch));
  std::size_t samples = 0;
  std::map<std::int64_t, std::size_t> of_step;
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_THAT(cluster.EngineOf<VisitEngine>(worker).calls(), SizeIs(Ge(4 * kPerEpoch * 9 / 10)))
        << "all work on each batch";
    for (const VisitEngine::Call& call : cluster.EngineOf<VisitEngine>(worker).calls()) {
      double visits = 0;
      for (const float value : call.parameters) {
        EXPECT_NEAR(value, std::round(value), 1e-3);
        visits += static_cast<double>(value);
      }
      const double step = visits / static_cast<double>(kBatch);
      EXPECT_NEAR(step, std::round(step), 1e-3);
      of_step[std::llround(step)] += call.samples.size();
      samples += call.samples.size();
    }
  }
  EXPECT_EQ(samples, static_cast<std::size_t>(4 * kSamples));
  EXPECT_THAT(of_step, SizeIs(4 * kPerEpoch));
  for (const auto& [step, count] : of_step) EXPECT_EQ(count, kBatch) << "step " << step;
}

// A job of a model that learns, whose epochs end with a short batch: 100 samples, 6 batches of 16
// and one of 4, which is fewer than there are portions.
v1alpha1::TrainingJobSpec LearningJob() {
  v1alpha1::TrainingJobSpec spec = Job(30);
  v1alpha1::SyntheticSource& data = *spec.mutable_dataset()->mutable_train()->mutable_synthetic();
  data.set_samples(100);
  data.add_shape(3);
  data.set_classes(4);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.5);
  return spec;
}
constexpr std::int64_t kSteps = 30 * 7;

std::unique_ptr<engine::Engine> NewTinyEngine(int /*worker*/) {
  return std::make_unique<TinyEngine>(3, 4, 7);
}

// What allreduce with plain SGD computes of the same file.
std::vector<float> Descent(const v1alpha1::TrainingJobSpec& spec) {
  const data::Datasets datasets = *data::LoadDatasets(spec);
  const data::Batches batches(datasets.train.size(), spec.dataset().global_batch_size(),
                              static_cast<std::uint64_t>(spec.seed()));
  TinyEngine engine(3, 4, 7);
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const std::vector<std::int64_t> ids = batches.SampleIds(step);
    std::vector<float> features(ids.size() * 3);
    std::vector<std::int64_t> labels(ids.size());
    data::Gather(datasets.train, ids, features, labels);
    EXPECT_TRUE(engine.ComputeGradients(features, labels, [](std::int64_t) {}).ok());
    for (std::size_t i = 0; i < engine.parameters().size(); ++i) {
      engine.parameters()[i] -= 0.5F * engine.gradients()[i] / static_cast<float>(ids.size());
    }
  }
  return {engine.parameters().begin(), engine.parameters().end()};
}

struct Trained {
  std::vector<float> parameters;
  std::int64_t steps = 0;
};

class SameModelTest : public BulkSynchronousJobTest {
 protected:
  // `changes`, one after the other, while it trains.
  Trained Train(const v1alpha1::TrainingJobSpec& spec, int workers,
                const std::vector<std::function<void(ServerCluster&)>>& changes = {}) {
    ServerCluster cluster(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
    cluster.AddServers(2);
    cluster.AddWorkers(workers);
    std::int64_t at = 0;
    for (const auto& change : changes) {
      EXPECT_TRUE(cluster.AwaitSettled(at += 40));
      change(cluster);
    }
    const v1alpha1::Result result = cluster.AwaitResult();
    Trained trained{TensorOf(result, "bias"), result.steps()};
    const std::vector<float> weight = TensorOf(result, "weight");
    trained.parameters.insert(trained.parameters.end(), weight.begin(), weight.end());
    return trained;
  }
  static float Difference(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return 1e9F;
    float most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
  }
};

TEST_F(SameModelTest, OneToFourWorkersMakeTheStepsThatAllReduceMakes) {
  const std::vector<float> descent = Descent(LearningJob());
  for (const int workers : {1, 2, 3, 4}) {
    const Trained trained = Train(LearningJob(), workers);
    EXPECT_EQ(trained.steps, kSteps) << workers;
    EXPECT_LT(Difference(trained.parameters, descent), 1e-4F) << workers;
  }
}

TEST_F(SameModelTest, SoDoOneThenFourThenTwoAndOneThatIsKilledAtWork) {
  v1alpha1::TrainingJobSpec spec = LearningJob();
  const Trained trained =
      Train(spec, 1,
            {[](ServerCluster& cluster) { cluster.AddWorkers(3); },
             [](ServerCluster& cluster) { cluster.Kill(ServerCluster::WorkerUid(1)); },
             [](ServerCluster& cluster) { cluster.Drain(ServerCluster::WorkerUid(0)); },
             [](ServerCluster& cluster) { cluster.Kill(ServerCluster::ServerUid(0)); }});
  EXPECT_EQ(trained.steps, kSteps);
  EXPECT_LT(Difference(trained.parameters, Descent(spec)), 1e-4F);
}

// The trap: of one push of each worker as one update there are as many fewer as there are workers.
TEST_F(SameModelTest, CountedByWorkersOneAndFourGiveOtherModels) {
  v1alpha1::TrainingJobSpec spec = LearningJob();
  ModelOf(spec).mutable_backup_workers()->set_backups(0);
  EXPECT_THAT(Difference(Train(spec, 1).parameters, Train(spec, 4).parameters), Gt(1e-2F));
}

TEST_F(BulkSynchronousJobTest, DeathsOfWorkersAndServersChangeNothing) {
  ServerCluster cluster(Job(10), VisitData(), NewVisitEngine, NewJobDir());

  const v1alpha1::Result result = TrainThroughDeaths(cluster);

  EXPECT_EQ(result.steps(), 10 * kPerEpoch);
  EXPECT_THAT(VisitsOf(result), Visited(10));
}

// Shards come back from snapshots of different moments: some have portions that others lack.
TEST_F(BulkSynchronousJobTest, AllServersLostTheStepsAreCompletedWhereTheyAreNot) {
  v1alpha1::TrainingJobSpec spec = Job(20);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(20'000'000);
  ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  for (const std::int64_t settled : {300, 900, 1500}) {
    ASSERT_TRUE(cluster.AwaitSettled(settled));
    ASSERT_TRUE(cluster.Await([&] { return cluster.Training().has_checkpoint(); }));
    for (const int server : {0, 1}) cluster.Kill(ServerCluster::ServerUid(server));
    for (const int server : {0, 1}) cluster.Restart(ServerCluster::ServerUid(server));
  }
  const v1alpha1::Result result = cluster.AwaitResult();
  EXPECT_EQ(result.steps(), 20 * kPerEpoch);
  EXPECT_THAT(VisitsOf(result), Visited(20));
}

TEST_F(BulkSynchronousJobTest, HaltsThoughAWorkerDiesAndGoesOnWithOtherWorkers) {
  const std::string folder = NewJobDir();
  {
    ServerCluster cluster(Job(12), VisitData(), NewVisitEngine, folder);
    cluster.AddServers(2);
    cluster.AddWorkers(3);
    ASSERT_TRUE(cluster.AwaitSettled(100));
    cluster.SetHalt(true);
    cluster.Kill(ServerCluster::WorkerUid(1));
    ASSERT_TRUE(cluster.Await([&] { return cluster.Summary().stopped; }));
    EXPECT_LT(cluster.coordinator().settled(), 12 * kPerEpoch);
  }
  ServerCluster cluster(Job(12), VisitData(), NewVisitEngine, folder);
  cluster.ReplaceCoordinator();
  cluster.AddServers(2);
  cluster.AddWorkers(4);
  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Visited(12));
}

}  // namespace
}  // namespace starling::worker
