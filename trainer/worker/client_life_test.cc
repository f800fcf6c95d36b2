// SPDX-License-Identifier: Apache-2.0
// Whole jobs with parameter servers, in one process: validation and the end, who comes, leaves and
// dies, what is saved and restored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>

#include "trainer/testing/sparse_job.h"
#include "trainer/testing/tiny_engine.h"
#include "trainer/testing/visit_job.h"
#include "trainer/worker/worker.h"

namespace starling::worker {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Ne;

using ClientLifeTest = ClientWorkerTest;

// Validation and the end.

v1alpha1::TrainingJobSpec TinyJob() {
  v1alpha1::TrainingJobSpec spec = VisitJob(20);
  const auto fill = [](v1alpha1::DataSource& source, std::int64_t samples) {
    source.mutable_synthetic()->set_samples(samples);
    source.mutable_synthetic()->add_shape(3);
    source.mutable_synthetic()->set_classes(4);
  };
  fill(*spec.mutable_dataset()->mutable_train(), 100);
  fill(*spec.mutable_dataset()->mutable_validation(), 50);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  spec.mutable_validation()->set_every_epochs(1);
  return spec;
}

std::unique_ptr<engine::Engine> NewTinyEngine(int /*worker*/) {
  return std::make_unique<TinyEngine>(3, 4, 7);
}

TEST_F(ClientLifeTest, ValidatesAndReachesItsTarget) {
  v1alpha1::TrainingJobSpec spec = TinyJob();
  spec.mutable_stop()->set_epochs(2000);
  spec.mutable_stop()->mutable_target()->set_metric("validation/accuracy");
  spec.mutable_stop()->mutable_target()->set_at_least(0.5);
  ServerCluster cluster(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);

  const v1alpha1::Result result = cluster.AwaitResult();

  EXPECT_TRUE(result.target_reached());
  EXPECT_THAT(result.steps(), Lt(2000));
  EXPECT_GE(result.metrics().at("validation/accuracy"), 0.5);
  EXPECT_THAT(result.model().sha256(), Ne(""));
}

TEST_F(ClientLifeTest, KeepsTheBestParametersAndStopsWhenPatienceEnds) {
  v1alpha1::TrainingJobSpec spec = TinyJob();
  spec.mutable_stop()->set_epochs(2000);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(4);  // it wanders
  spec.mutable_validation()->set_keep_best(true);
  spec.mutable_validation()->set_patience(3);
  ServerCluster cluster(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);

  const v1alpha1::Result result = cluster.AwaitResult();

  EXPECT_THAT(result.steps(), Lt(10'000));
  EXPECT_THAT(result.metrics().at("validation/loss"),
              Lt(cluster.Training().progress().metrics().at("validation/loss")));
}

TEST_F(ClientLifeTest, AnotherWorkerValidatesAndConcludesWhenTheFirstDies) {
  v1alpha1::TrainingJobSpec spec = TinyJob();
  spec.mutable_stop()->set_epochs(30);
  ServerCluster cluster(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  const auto turn = [&] {
    std::int64_t newest = 0;
    for (int worker = 0; worker < 3; ++worker) {
      v1alpha1::ParameterServerReport report;
      report.ParseFromString(cluster.ReportOf(ServerCluster::WorkerUid(worker)).parameter_server);
      newest = std::max(newest, report.evaluation().turn());
    }
    return newest;
  };
  ASSERT_TRUE(cluster.Await([&] { return turn() >= 3; }));
  cluster.Kill(ServerCluster::WorkerUid(0));
  ASSERT_TRUE(cluster.Await([&] { return turn() >= 10; }));
  cluster.Kill(ServerCluster::WorkerUid(1));

  const v1alpha1::Result result = cluster.AwaitResult();

  EXPECT_EQ(result.epochs(), 30);
  EXPECT_TRUE(result.metrics().contains("validation/accuracy"));
}

TEST_F(ClientLifeTest, ALeavingWorkerFinishesWhatItHoldsAndGoes) {
  ServerCluster cluster(VisitJob(20), VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  ASSERT_TRUE(cluster.AwaitSettled(50));

  cluster.Terminate(ServerCluster::WorkerUid(1));

  ASSERT_TRUE(cluster.AwaitEnd(ServerCluster::WorkerUid(1)));
  EXPECT_TRUE(cluster.EndOf(ServerCluster::WorkerUid(1)).ok());
  EXPECT_LT(cluster.coordinator().settled(), 20 * kPerEpoch) << "the others go on";
  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(20.0F));
  // What it did is in: nothing was done twice.
  std::size_t calls = 0;
  for (int worker = 0; worker < 3; ++worker) {
    calls += cluster.EngineOf<VisitEngine>(worker).calls().size();
  }
  EXPECT_EQ(calls, static_cast<std::size_t>(20 * kPerEpoch));
}

TEST_F(ClientLifeTest, ServersAndWorkersComeAndGoWhileItTrains) {
  v1alpha1::TrainingJobSpec spec = VisitJob(30);
  ModelOf(spec).mutable_stale_synchronous()->set_staleness(3);
  ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(1);
  cluster.AddWorkers(1);
  ASSERT_TRUE(cluster.AwaitSettled(50));
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  ASSERT_TRUE(cluster.AwaitSettled(700));
  cluster.Drain(ServerCluster::ServerUid(0));
  cluster.Drain(ServerCluster::WorkerUid(0));
  cluster.Drain(ServerCluster::WorkerUid(3));
  ASSERT_TRUE(cluster.AwaitEnd(ServerCluster::ServerUid(0)));
  ASSERT_TRUE(cluster.AwaitEnd(ServerCluster::WorkerUid(0)));
  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(30.0F));
}

TEST_F(ClientLifeTest, ASuccessorOfTheCoordinatorGoesOnWhereItWas) {
  ServerCluster cluster(VisitJob(20), VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);
  ASSERT_TRUE(cluster.AwaitSettled(100));
  cluster.ReplaceCoordinator();
  ASSERT_TRUE(cluster.AwaitSettled(300));
  cluster.ReplaceCoordinator();
  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(20.0F));
}

TEST_F(ClientLifeTest, AllServersLostTheShardsComeFromTheirSnapshotsAndLeasesAreRedone) {
  v1alpha1::TrainingJobSpec spec = VisitJob(40);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(20'000'000);
  ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);
  ASSERT_TRUE(cluster.AwaitSettled(300));
  ASSERT_TRUE(cluster.Await([&] { return cluster.Training().has_checkpoint(); }));

  cluster.Kill(ServerCluster::ServerUid(0));
  cluster.Kill(ServerCluster::ServerUid(1));
  cluster.Restart(ServerCluster::ServerUid(0));
  cluster.Restart(ServerCluster::ServerUid(1));

  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(40.0F));
}

TEST_F(ClientLifeTest, HaltsAndGoesOnFromWhatTheServersHaveSaved) {
  const std::string folder = NewJobDir();
  std::int64_t stopped_at = 0;
  {
    ServerCluster cluster(VisitJob(30), VisitData(), NewVisitEngine, folder);
    cluster.AddServers(2);
    cluster.AddWorkers(2);
    ASSERT_TRUE(cluster.AwaitSettled(100));
    cluster.SetHalt(true);
    ASSERT_TRUE(cluster.Await([&] { return cluster.Summary().stopped; }));
    stopped_at = cluster.coordinator().settled();
    EXPECT_LT(stopped_at, 30 * kPerEpoch);
  }
  ServerCluster cluster(VisitJob(30), VisitData(), NewVisitEngine, folder);
  cluster.ReplaceCoordinator();  // incarnation 2: its views are later ones
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  ASSERT_TRUE(cluster.AwaitSettled(stopped_at));
  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(30.0F));
  std::size_t calls = 0;
  for (int worker = 0; worker < 3; ++worker) {
    calls += cluster.EngineOf<VisitEngine>(worker).calls().size();
  }
  EXPECT_EQ(calls, static_cast<std::size_t>(30 * kPerEpoch - stopped_at)) << "nothing is repeated";
}

// Anybody dies at any moment, all copies of a shard at once too, and the coordinator; most come
// back.
TEST_F(ClientLifeTest, WhoeverDiesWheneverEverySampleIsUsedOnceAnEpoch) {
  const char* wanted = std::getenv("STARLING_CHAOS_SEED");
  std::mt19937 random(wanted == nullptr ? 1 : static_cast<unsigned>(std::atoi(wanted)));
  v1alpha1::TrainingJobSpec spec = VisitJob(12);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(100'000'000);
  switch (random() % 5) {
    case 0:
      ModelOf(spec).mutable_asynchronous();
      break;
    case 1:
      ModelOf(spec).mutable_bounded_delay()->set_delay(3);
      break;
    case 2:
      ModelOf(spec).mutable_bulk_synchronous();
      break;
    default:
      ModelOf(spec).mutable_stale_synchronous()->set_staleness(2);
  }
  ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(3);
  cluster.AddWorkers(3);
  std::vector<std::string> uids;
  for (int i = 0; i < 3; ++i) {
    uids.push_back(ServerCluster::WorkerUid(i));
    uids.push_back(ServerCluster::ServerUid(i));
  }
  std::set<std::string> dead;
  for (int event = 0; event < 25 && !cluster.Training().has_result(); ++event) {
    const std::string& uid = uids[random() % uids.size()];
    if (dead.erase(uid) > 0) {
      cluster.Restart(uid);
    } else if (random() % 6 == 0) {
      cluster.ReplaceCoordinator();
    } else {
      cluster.Kill(uid);
      dead.insert(uid);
    }
    for (auto turns = random() % 150; turns > 0; --turns) cluster.Turn();
    if (dead.size() > 4) continue;
    cluster.AwaitFor(absl::Milliseconds(random() % 200));
  }
  for (const std::string& uid : dead) cluster.Restart(uid);
  const v1alpha1::Result result = cluster.AwaitResult();
  ASSERT_EQ(result.steps(), 12 * kPerEpoch) << "settled " << cluster.coordinator().settled();
  // Shares of 5 of 16 samples are not exact.
  EXPECT_THAT(VisitsOf(result),
              Each(FloatNear(12, ModelOf(spec).has_bulk_synchronous() ? 1e-3F : 0)));
}

// Its third call fails as if a peer were gone. Confined to one thread.
class FailingEngine final : public engine::Engine {
 public:
  std::span<const engine::Tensor> tensors() const override { return engine_.tensors(); }
  std::span<float> parameters() override { return engine_.parameters(); }
  std::span<float> gradients() override { return engine_.gradients(); }
  std::span<const engine::Bucket> buckets() const override { return engine_.buckets(); }
  absl::StatusOr<engine::BatchSums> ComputeGradients(std::span<const float> features,
                                                     std::span<const std::int64_t> labels,
                                                     const OnBucket& on_bucket) override {
    if (++calls_ == 3) return absl::UnavailableError("the device has gone away");
    return engine_.ComputeGradients(features, labels, on_bucket);
  }
  absl::StatusOr<engine::BatchSums> Evaluate(std::span<const float> features,
                                             std::span<const std::int64_t> labels) override {
    return engine_.Evaluate(features, labels);
  }

 private:
  TinyEngine engine_{3, 4, 7};
  int calls_ = 0;
};

TEST_F(ClientLifeTest, AWorkloadThatFailsIsTheJobsFailureWhateverItCallsIt) {
  const v1alpha1::TrainingJobSpec spec = TinyJob();
  ServerCluster cluster(
      spec, *data::LoadDatasets(spec), [](int) { return std::make_unique<FailingEngine>(); },
      NewJobDir());
  cluster.AddServers(1);
  cluster.AddWorkers(1);
  ASSERT_TRUE(cluster.AwaitEnd(ServerCluster::WorkerUid(0)));
  const absl::Status end = cluster.EndOf(ServerCluster::WorkerUid(0));
  EXPECT_TRUE(absl::IsInternal(end)) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("the device has gone away"));
}

// A worker that has nothing to do asks the servers for the course.
TEST_F(ClientLifeTest, WhatTheServersKeepMayBeHeardBeforeTheFirstOrders) {
  const v1alpha1::TrainingJobSpec spec = TinyJob();
  ServerCluster cluster(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  cluster.WithholdOrders(true);
  cluster.AddServers(1);
  cluster.AddWorkers(1);
  ASSERT_TRUE(cluster.Await([&] {
    return cluster.ReportOf(ServerCluster::WorkerUid(0)).phase == membership::Phase::kRun;
  }));
  cluster.AwaitFor(absl::Milliseconds(50));
  cluster.WithholdOrders(false);
  EXPECT_GT(cluster.AwaitResult().steps(), 0);
}

TEST_F(ClientLifeTest, DivergenceIsTheJobsFailureAndNothingOfItIsPushed) {
  v1alpha1::TrainingJobSpec spec = TinyJob();
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1e38);
  spec.mutable_stop()->set_epochs(1000);
  ServerCluster cluster(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  cluster.AddServers(1);
  cluster.AddWorkers(1);
  ASSERT_TRUE(cluster.AwaitEnd(ServerCluster::WorkerUid(0)));
  EXPECT_THAT(cluster.EndOf(ServerCluster::WorkerUid(0)).message(),
              HasSubstr("not a finite number"));
  ASSERT_TRUE(cluster.Await([&] { return cluster.Training().failure() != ""; }));
  EXPECT_THAT(cluster.Training().failure(), HasSubstr("learningRate"));
}

// Sixteen samples with a weight of their own each, and one that all share.
std::shared_ptr<const data::SparseDataset> SparseSamples() {
  auto all = std::make_shared<data::SparseDataset>();
  all->hashed = 1 << 20;
  for (std::uint64_t i = 0; i < 160; ++i) {
    all->features.insert(all->features.end(), {i % 16 * 50021 + 1, 900001});
    all->values.insert(all->values.end(), {1, 0.1F});
    all->offsets.push_back(all->features.size());
    all->labels.push_back(i % 2 == 0 ? 1 : -1);
  }
  return all;
}

TEST_F(ClientLifeTest, ASparseModelTrainsByItsTouchedRowsThoughAServerIsKilled) {
  const std::shared_ptr<const data::SparseDataset> samples = SparseSamples();
  v1alpha1::TrainingJobSpec spec = VisitJob(/*epochs=*/20);
  spec.mutable_workload()->mutable_sparse_logistic_regression()->set_hashed_features(1 << 20);
  spec.mutable_dataset()->mutable_validation()->mutable_libsvm()->set_uri("in memory here");
  spec.mutable_optimizer()->mutable_adagrad()->set_learning_rate(0.5);
  spec.mutable_validation()->set_every_epochs(1);
  for (const bool in_step : {false, true}) {
    if (in_step) ModelOf(spec).mutable_bulk_synchronous();
    ServerCluster cluster(spec, Logistic(samples), NewJobDir());
    cluster.AddServers(2);
    cluster.AddWorkers(2);
    ASSERT_TRUE(cluster.AwaitSettled(20));
    cluster.Kill(ServerCluster::ServerUid(0));
    const v1alpha1::Result result = cluster.AwaitResult();
    EXPECT_EQ(result.steps(), 200);
    EXPECT_GT(result.metrics().at("validation/accuracy"), 0.99);
  }
}

}  // namespace
}  // namespace starling::worker
