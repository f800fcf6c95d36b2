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
  ServerFlock flock(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(2);

  const v1alpha1::Result result = flock.AwaitResult();

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
  ServerFlock flock(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(2);

  const v1alpha1::Result result = flock.AwaitResult();

  EXPECT_THAT(result.steps(), Lt(10'000));
  EXPECT_THAT(result.metrics().at("validation/loss"),
              Lt(flock.Training().progress().metrics().at("validation/loss")));
}

TEST_F(ClientLifeTest, AnotherWorkerValidatesAndConcludesWhenTheFirstDies) {
  v1alpha1::TrainingJobSpec spec = TinyJob();
  spec.mutable_stop()->set_epochs(30);
  ServerFlock flock(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(3);
  const auto turn = [&] {
    std::int64_t newest = 0;
    for (int worker = 0; worker < 3; ++worker) {
      v1alpha1::ParameterServerReport report;
      report.ParseFromString(flock.ReportOf(ServerFlock::WorkerUid(worker)).parameter_server);
      newest = std::max(newest, report.evaluation().turn());
    }
    return newest;
  };
  ASSERT_TRUE(flock.Await([&] { return turn() >= 3; }));
  flock.Kill(ServerFlock::WorkerUid(0));
  ASSERT_TRUE(flock.Await([&] { return turn() >= 10; }));
  flock.Kill(ServerFlock::WorkerUid(1));

  const v1alpha1::Result result = flock.AwaitResult();

  EXPECT_EQ(result.epochs(), 30);
  EXPECT_TRUE(result.metrics().contains("validation/accuracy"));
}

TEST_F(ClientLifeTest, ALeavingWorkerFinishesWhatItHoldsAndGoes) {
  ServerFlock flock(VisitJob(20), VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(3);
  ASSERT_TRUE(flock.AwaitSettled(50));

  flock.Terminate(ServerFlock::WorkerUid(1));

  ASSERT_TRUE(flock.AwaitEnd(ServerFlock::WorkerUid(1)));
  EXPECT_TRUE(flock.EndOf(ServerFlock::WorkerUid(1)).ok());
  EXPECT_LT(flock.coordinator().settled(), 20 * kPerEpoch) << "the others go on";
  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(20.0F));
  // What it did is in: nothing was done twice.
  std::size_t calls = 0;
  for (int worker = 0; worker < 3; ++worker) {
    calls += flock.EngineOf<VisitEngine>(worker).calls().size();
  }
  EXPECT_EQ(calls, static_cast<std::size_t>(20 * kPerEpoch));
}

TEST_F(ClientLifeTest, ServersAndWorkersComeAndGoWhileItTrains) {
  v1alpha1::TrainingJobSpec spec = VisitJob(30);
  ModelOf(spec).mutable_stale_synchronous()->set_staleness(3);
  ServerFlock flock(spec, VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(1);
  flock.AddWorkers(1);
  ASSERT_TRUE(flock.AwaitSettled(50));
  flock.AddServers(2);
  flock.AddWorkers(3);
  ASSERT_TRUE(flock.AwaitSettled(700));
  flock.Drain(ServerFlock::ServerUid(0));
  flock.Drain(ServerFlock::WorkerUid(0));
  flock.Drain(ServerFlock::WorkerUid(3));
  ASSERT_TRUE(flock.AwaitEnd(ServerFlock::ServerUid(0)));
  ASSERT_TRUE(flock.AwaitEnd(ServerFlock::WorkerUid(0)));
  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(30.0F));
}

TEST_F(ClientLifeTest, ASuccessorOfTheCoordinatorGoesOnWhereItWas) {
  ServerFlock flock(VisitJob(20), VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(2);
  ASSERT_TRUE(flock.AwaitSettled(100));
  flock.ReplaceCoordinator();
  ASSERT_TRUE(flock.AwaitSettled(300));
  flock.ReplaceCoordinator();
  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(20.0F));
}

TEST_F(ClientLifeTest, AllServersLostTheShardsComeFromTheirSnapshotsAndLeasesAreRedone) {
  v1alpha1::TrainingJobSpec spec = VisitJob(40);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(20'000'000);
  ServerFlock flock(spec, VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(2);
  ASSERT_TRUE(flock.AwaitSettled(300));
  ASSERT_TRUE(flock.Await([&] { return flock.Training().has_checkpoint(); }));

  flock.Kill(ServerFlock::ServerUid(0));
  flock.Kill(ServerFlock::ServerUid(1));
  flock.Restart(ServerFlock::ServerUid(0));
  flock.Restart(ServerFlock::ServerUid(1));

  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(40.0F));
}

TEST_F(ClientLifeTest, HaltsAndGoesOnFromWhatTheServersHaveSaved) {
  const std::string folder = NewJobDir();
  std::int64_t stopped_at = 0;
  {
    ServerFlock flock(VisitJob(30), VisitData(), NewVisitEngine, folder);
    flock.AddServers(2);
    flock.AddWorkers(2);
    ASSERT_TRUE(flock.AwaitSettled(100));
    flock.SetHalt(true);
    ASSERT_TRUE(flock.Await([&] { return flock.Summary().stopped; }));
    stopped_at = flock.coordinator().settled();
    EXPECT_LT(stopped_at, 30 * kPerEpoch);
  }
  ServerFlock flock(VisitJob(30), VisitData(), NewVisitEngine, folder);
  flock.ReplaceCoordinator();  // incarnation 2: its views are later ones
  flock.AddServers(2);
  flock.AddWorkers(3);
  ASSERT_TRUE(flock.AwaitSettled(stopped_at));
  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(30.0F));
  std::size_t calls = 0;
  for (int worker = 0; worker < 3; ++worker) {
    calls += flock.EngineOf<VisitEngine>(worker).calls().size();
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
  ServerFlock flock(spec, VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(3);
  flock.AddWorkers(3);
  std::vector<std::string> uids;
  for (int i = 0; i < 3; ++i) {
    uids.push_back(ServerFlock::WorkerUid(i));
    uids.push_back(ServerFlock::ServerUid(i));
  }
  std::set<std::string> dead;
  for (int event = 0; event < 25 && !flock.Training().has_result(); ++event) {
    const std::string& uid = uids[random() % uids.size()];
    if (dead.erase(uid) > 0) {
      flock.Restart(uid);
    } else if (random() % 6 == 0) {
      flock.ReplaceCoordinator();
    } else {
      flock.Kill(uid);
      dead.insert(uid);
    }
    for (auto turns = random() % 150; turns > 0; --turns) flock.Turn();
    if (dead.size() > 4) continue;
    flock.AwaitFor(absl::Milliseconds(random() % 200));
  }
  for (const std::string& uid : dead) flock.Restart(uid);
  const v1alpha1::Result result = flock.AwaitResult();
  ASSERT_EQ(result.steps(), 12 * kPerEpoch) << "settled " << flock.coordinator().settled();
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
  ServerFlock flock(
      spec, *data::LoadDatasets(spec), [](int) { return std::make_unique<FailingEngine>(); },
      NewJobDir());
  flock.AddServers(1);
  flock.AddWorkers(1);
  ASSERT_TRUE(flock.AwaitEnd(ServerFlock::WorkerUid(0)));
  const absl::Status end = flock.EndOf(ServerFlock::WorkerUid(0));
  EXPECT_TRUE(absl::IsInternal(end)) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("the device has gone away"));
}

// A worker that has nothing to do asks the servers for the course.
TEST_F(ClientLifeTest, WhatTheServersKeepMayBeHeardBeforeTheFirstOrders) {
  const v1alpha1::TrainingJobSpec spec = TinyJob();
  ServerFlock flock(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  flock.WithholdOrders(true);
  flock.AddServers(1);
  flock.AddWorkers(1);
  ASSERT_TRUE(flock.Await(
      [&] { return flock.ReportOf(ServerFlock::WorkerUid(0)).phase == membership::Phase::kRun; }));
  flock.AwaitFor(absl::Milliseconds(50));
  flock.WithholdOrders(false);
  EXPECT_GT(flock.AwaitResult().steps(), 0);
}

TEST_F(ClientLifeTest, DivergenceIsTheJobsFailureAndNothingOfItIsPushed) {
  v1alpha1::TrainingJobSpec spec = TinyJob();
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1e38);
  spec.mutable_stop()->set_epochs(1000);
  ServerFlock flock(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  flock.AddServers(1);
  flock.AddWorkers(1);
  ASSERT_TRUE(flock.AwaitEnd(ServerFlock::WorkerUid(0)));
  EXPECT_THAT(flock.EndOf(ServerFlock::WorkerUid(0)).message(), HasSubstr("not a finite number"));
  ASSERT_TRUE(flock.Await([&] { return flock.Training().failure() != ""; }));
  EXPECT_THAT(flock.Training().failure(), HasSubstr("learningRate"));
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
    ServerFlock flock(spec, Logistic(samples), NewJobDir());
    flock.AddServers(2);
    flock.AddWorkers(2);
    ASSERT_TRUE(flock.AwaitSettled(20));
    flock.Kill(ServerFlock::ServerUid(0));
    const v1alpha1::Result result = flock.AwaitResult();
    EXPECT_EQ(result.steps(), 200);
    EXPECT_GT(result.metrics().at("validation/accuracy"), 0.99);
  }
}

}  // namespace
}  // namespace starling::worker
