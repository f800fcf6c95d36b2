// SPDX-License-Identifier: Apache-2.0
// Whole jobs whose workers hold some of the tensors and servers the others
// (spec.exchange.parameterServer.tensors).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "trainer/testing/visit_job.h"

namespace starling::worker {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// Three tensors of a number for each sample, which goes up by 1 with each use; three buckets that
// do not end where tensors do. "table" lies between the two that workers hold.
class BothEngine final : public engine::Engine {
 public:
  explicit BothEngine(std::int64_t samples)
      : samples_(samples),
        tensors_{{"last.weight", {samples}, 0, samples},
                 {"table.weight", {samples}, samples, samples},
                 {"first.weight", {samples}, 2 * samples, samples}},
        buckets_{{0, samples / 2}, {samples / 2, 5 * samples / 2}, {5 * samples / 2, 3 * samples}},
        parameters_(static_cast<std::size_t>(3 * samples)),
        gradients_(parameters_.size()) {}

  std::span<const engine::Tensor> tensors() const override { return tensors_; }
  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradients() override { return gradients_; }
  std::span<const engine::Bucket> buckets() const override { return buckets_; }

  absl::StatusOr<engine::BatchSums> ComputeGradients(std::span<const float> features,
                                                     std::span<const std::int64_t> labels,
                                                     const OnBucket& on_bucket) override {
    std::ranges::fill(gradients_, 0.0F);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto sample = static_cast<std::int64_t>(features[i]);
      for (std::int64_t tensor = 0; tensor < 3; ++tensor) {
        gradients_[static_cast<std::size_t>(tensor * samples_ + sample)] -= 1;
      }
    }
    for (int bucket = 0; bucket < 3; ++bucket) on_bucket(bucket);
    return engine::BatchSums{.loss = static_cast<double>(labels.size()), .correct = 0};
  }
  // Both kinds of tensors are of one step: their sums are equal.
  absl::StatusOr<engine::BatchSums> Evaluate(std::span<const float> /*features*/,
                                             std::span<const std::int64_t> labels) override {
    const std::span<const float> all = parameters_;
    const auto of = [&](std::int64_t tensor) {
      const auto part = all.subspan(static_cast<std::size_t>(tensor * samples_),
                                    static_cast<std::size_t>(samples_));
      return std::accumulate(part.begin(), part.end(), 0.0);
    };
    engine::BatchSums sums;
    sums.loss = std::abs(of(0) - of(1)) * static_cast<double>(labels.size());
    sums.correct = static_cast<std::int64_t>(labels.size());
    return sums;
  }

 private:
  const std::int64_t samples_;
  const std::vector<engine::Tensor> tensors_;
  const std::vector<engine::Bucket> buckets_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
};

std::unique_ptr<engine::Engine> NewBothEngine(int /*worker*/) {
  return std::make_unique<BothEngine>(kSamples);
}

class HybridJobTest : public ClientWorkerTest {
 protected:
  static v1alpha1::TrainingJobSpec Job(std::int64_t epochs) {
    v1alpha1::TrainingJobSpec spec = VisitJob(epochs);
    ModelOf(spec).mutable_bulk_synchronous();
    spec.mutable_exchange()->mutable_parameter_server()->add_tensors("table.*");
    return spec;
  }
  static void ExpectEachSampleOncePerEpoch(const v1alpha1::Result& result, std::int64_t epochs) {
    ASSERT_TRUE(result.has_model());
    const auto all = Each(static_cast<float>(epochs));
    EXPECT_THAT(TensorOf(result, "first.weight"), all);
    EXPECT_THAT(TensorOf(result, "table.weight"), all);
    EXPECT_THAT(TensorOf(result, "last.weight"), all);
    EXPECT_EQ(result.steps(), epochs * kPerEpoch);
  }
};

TEST_F(HybridJobTest, EachSampleCountsOnceInBothKindsOfTensors) {
  ServerCluster cluster(Job(3), VisitData(), NewBothEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  ExpectEachSampleOncePerEpoch(cluster.AwaitResult(), 3);
}

TEST_F(HybridJobTest, AKilledWorkerIsReplacedAndNothingCountsTwice) {
  ServerCluster cluster(Job(8), VisitData(), NewBothEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  ASSERT_TRUE(cluster.AwaitSettled(150));
  cluster.Kill(ServerCluster::WorkerUid(1));
  ASSERT_TRUE(cluster.AwaitSettled(300));
  cluster.Restart(ServerCluster::WorkerUid(1));
  ASSERT_TRUE(cluster.AwaitSettled(450));
  cluster.Kill(ServerCluster::WorkerUid(0));
  ExpectEachSampleOncePerEpoch(cluster.AwaitResult(), 8);
}

TEST_F(HybridJobTest, AKilledServersCopiesGoOn) {
  ServerCluster cluster(Job(8), VisitData(), NewBothEngine, NewJobDir());
  cluster.AddServers(3);
  cluster.AddWorkers(2);
  ASSERT_TRUE(cluster.AwaitSettled(150));
  cluster.Kill(ServerCluster::ServerUid(0));
  ASSERT_TRUE(cluster.AwaitSettled(400));
  cluster.Restart(ServerCluster::ServerUid(0));
  ASSERT_TRUE(cluster.AwaitSettled(500));
  cluster.Kill(ServerCluster::ServerUid(1));
  ExpectEachSampleOncePerEpoch(cluster.AwaitResult(), 8);
}

TEST_F(HybridJobTest, ACoordinatorsSuccessorGoesOn) {
  ServerCluster cluster(Job(6), VisitData(), NewBothEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);
  ASSERT_TRUE(cluster.AwaitSettled(150));
  cluster.ReplaceCoordinator();
  ASSERT_TRUE(cluster.AwaitSettled(300));
  cluster.Kill(ServerCluster::WorkerUid(1));
  cluster.ReplaceCoordinator();
  ExpectEachSampleOncePerEpoch(cluster.AwaitResult(), 6);
}

// Rule H4: what the workers have and a restored server lacks is computed for that server alone.
TEST_F(HybridJobTest, AServerThatIsRestoredCatchesUpWithTheWorkers) {
  v1alpha1::TrainingJobSpec spec = Job(8);
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(20'000'000);
  ServerCluster cluster(spec, VisitData(), NewBothEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);
  ASSERT_TRUE(cluster.AwaitSettled(300));
  cluster.Kill(ServerCluster::ServerUid(0));
  cluster.Kill(ServerCluster::ServerUid(1));
  cluster.Restart(ServerCluster::ServerUid(0));
  cluster.Restart(ServerCluster::ServerUid(1));
  ExpectEachSampleOncePerEpoch(cluster.AwaitResult(), 8);
}

// Servers skip what they have of the steps that workers make again.
TEST_F(HybridJobTest, WorkersThatAreRestoredMakeStepsAgainThatServersSkip) {
  v1alpha1::TrainingJobSpec spec = Job(8);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(20'000'000);
  ServerCluster cluster(spec, VisitData(), NewBothEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);
  ASSERT_TRUE(cluster.AwaitSettled(300));
  cluster.Kill(ServerCluster::WorkerUid(0));
  cluster.Kill(ServerCluster::WorkerUid(1));
  cluster.Restart(ServerCluster::WorkerUid(0));
  cluster.Restart(ServerCluster::WorkerUid(1));
  ExpectEachSampleOncePerEpoch(cluster.AwaitResult(), 8);
}

TEST_F(HybridJobTest, WhatIsValidatedIsOfOneStep) {
  v1alpha1::TrainingJobSpec spec = Job(3);
  data::Datasets datasets = VisitData();
  datasets.validation = datasets.train;
  spec.mutable_validation()->set_every_epochs(1);
  ServerCluster cluster(spec, datasets, NewBothEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);
  const v1alpha1::Result result = cluster.AwaitResult();
  ExpectEachSampleOncePerEpoch(result, 3);
  EXPECT_EQ(result.metrics().at("validation/loss"), 0);
}

// The portions of the next step were pushed when the validation told that this one is the last.
TEST_F(HybridJobTest, WhereAValidationEndsTrainingTheResultIsOfTheStateThatWasValidated) {
  v1alpha1::TrainingJobSpec spec = Job(5);
  data::Datasets datasets = VisitData();
  datasets.validation = datasets.train;
  spec.mutable_validation()->set_every_epochs(2);
  spec.mutable_stop()->mutable_target()->set_metric("validation/loss");
  spec.mutable_stop()->mutable_target()->set_at_most(0);  // both kinds of tensors are equal
  ServerCluster cluster(spec, datasets, NewBothEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);
  const v1alpha1::Result result = cluster.AwaitResult();
  ExpectEachSampleOncePerEpoch(result, 2);
  EXPECT_TRUE(result.target_reached());
}

// A step that is made again may read servers that have it already, and one worker before the other:
// what is copied must be the same at all.
TEST_F(HybridJobTest, WhoJoinsFindsHoldersThatDoNotDiffer) {
  v1alpha1::TrainingJobSpec spec = Job(12);
  data::Datasets datasets = VisitData();
  datasets.validation = datasets.train;
  spec.mutable_validation()->set_every_epochs(1);
  spec.mutable_validation()->set_keep_best(true);
  ServerCluster cluster(spec, datasets, NewBothEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(4);
  for (int round = 1; round <= 12; ++round) {
    const std::string uid = ServerCluster::WorkerUid(round % 3 + 1);
    ASSERT_TRUE(cluster.AwaitSettled(40 * (2 * round - 1)));
    cluster.Kill(uid);
    ASSERT_TRUE(cluster.AwaitSettled(40 * 2 * round));
    cluster.Restart(uid);
  }
  const v1alpha1::Result result = cluster.AwaitResult();
  EXPECT_EQ(result.steps(), 12 * kPerEpoch);
  EXPECT_EQ(result.metrics().at("validation/loss"), 0) << "of one state";
  for (const membership::IncidentRecord& incident : cluster.Summary().incidents) {
    EXPECT_THAT(incident.reason, Not(HasSubstr("Unreachable"))) << incident.message;
  }
}

// Some of them have no portion of a step.
TEST_F(HybridJobTest, MoreWorkersThanPortionsTrainAsWell) {
  v1alpha1::TrainingJobSpec spec = Job(2);
  spec.mutable_exchange()->mutable_parameter_server()->set_samples_per_push(8);  // two portions
  ServerCluster cluster(spec, VisitData(), NewBothEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(4);
  ASSERT_TRUE(cluster.AwaitSettled(50));
  cluster.Kill(ServerCluster::WorkerUid(0));
  ASSERT_TRUE(cluster.AwaitSettled(100));
  cluster.Terminate(ServerCluster::WorkerUid(1));
  ExpectEachSampleOncePerEpoch(cluster.AwaitResult(), 2);
}

TEST_F(HybridJobTest, AServerThatIsRestoredWhileTheJobHaltsKeepsItNot) {
  v1alpha1::TrainingJobSpec spec = Job(50);
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(20'000'000);
  ServerCluster cluster(spec, VisitData(), NewBothEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);
  ASSERT_TRUE(cluster.AwaitSettled(200));
  cluster.SetHalt(true);
  cluster.Kill(ServerCluster::ServerUid(0));
  cluster.Restart(ServerCluster::ServerUid(0));
  EXPECT_TRUE(cluster.Await([&] { return cluster.Summary().stopped; }));
}

TEST_F(HybridJobTest, AHaltedJobGoesOnWhereItStopped) {
  v1alpha1::TrainingJobSpec spec = Job(6);
  const std::string job_dir = NewJobDir();
  {
    ServerCluster cluster(spec, VisitData(), NewBothEngine, job_dir);
    cluster.AddServers(2);
    cluster.AddWorkers(2);
    ASSERT_TRUE(cluster.AwaitSettled(200));
    cluster.SetHalt(true);
    ASSERT_TRUE(cluster.Await([&] { return cluster.Summary().stopped; }));
  }
  ServerCluster cluster(spec, VisitData(), NewBothEngine, job_dir);
  cluster.ReplaceCoordinator();  // of a later incarnation than the checkpoints
  for (int i = 0; i < 2; ++i) cluster.SetHalt(false);  // later settings than those of the halt
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  ExpectEachSampleOncePerEpoch(cluster.AwaitResult(), 6);
}

TEST_F(HybridJobTest, TensorsThatTheModelDoesNotHaveAreNamed) {
  v1alpha1::TrainingJobSpec spec = Job(1);
  const auto made = [&](const std::string& name) {
    spec.mutable_exchange()->mutable_parameter_server()->set_tensors(0, name);
    transport::InprocNetwork network;
    transport::Options options;
    options.member = "w#0";
    options.job = "job";
    options.secret = "secret";
    const auto transport = *network.OpenTransport(options);
    const std::string job_dir = NewJobDir();
    const auto storage =
        *storage::Open(checkpoint::JobPlace(spec.checkpoint().uri(), "job", job_dir));
    const clock::SystemClock clock;
    metrics::Registry registry;
    workload::Classification workload(VisitData(), NewBothEngine(0), "");
    WorkerConfig config;
    config.spec = spec;
    config.job_dir = job_dir;
    return Worker::Create(std::move(config), {.workload = workload,
                                              .transport = *transport,
                                              .storage = *storage,
                                              .clock = clock,
                                              .registry = registry,
                                              .notify = [] {},
                                              .on_view = nullptr})
        .status();
  };
  EXPECT_TRUE(made("table.weight").ok());
  const absl::Status none = made("embedding*");
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.message()), HasSubstr("no tensor \"embedding*\""));
  EXPECT_THAT(std::string(none.message()), HasSubstr("last.weight, table.weight, first.weight"));
  EXPECT_THAT(std::string(made("*").message()), HasSubstr("leave it out"));
}

}  // namespace
}  // namespace starling::worker
