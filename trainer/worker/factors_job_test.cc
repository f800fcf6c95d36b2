// SPDX-License-Identifier: Apache-2.0
// Jobs whose fully connected layer reaches the servers as activations and errors
// (update.activations): fewer bytes, the same model.
#include <cmath>

#include "trainer/testing/tiny_engine.h"
#include "trainer/testing/transports.h"
#include "trainer/testing/visit_job.h"
#include "trainer/testing/waves.h"

namespace starling::worker {
namespace {

constexpr std::int64_t kInputs = 512, kClasses = 32;
constexpr std::int64_t kPush = 4;  // samples
constexpr std::int64_t kRows = 400;
constexpr std::int64_t kPushes = kRows / kPush;  // in an epoch
constexpr std::int64_t kShardsOfJob = 4;

v1alpha1::TrainingJobSpec Job(bool factored) {
  v1alpha1::TrainingJobSpec spec = VisitJob(2);
  spec.mutable_dataset()->set_global_batch_size(kPush);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.05);
  v1alpha1::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_shards(kShardsOfJob);
  server.set_replication(1);
  if (factored) spec.mutable_update()->mutable_activations();
  return spec;
}

class FactorsJobTest : public ClientWorkerTest {
 protected:
  struct Outcome {
    std::vector<float> weight;
    double sent = 0;  // bytes, by the worker
  };
  // One worker, so that nobody's order matters.
  Outcome Trained(const v1alpha1::TrainingJobSpec& spec, int servers = 2) {
    ServerCluster cluster(
        spec, Waves(kInputs, kClasses, kRows),
        [](int) { return std::make_unique<TinyEngine>(kInputs, kClasses, 7); }, NewJobDir());
    cluster.AddServers(servers);
    cluster.AddWorkers(1);
    const v1alpha1::Result result = cluster.AwaitResult();
    EXPECT_EQ(result.steps(), 2 * kPushes);
    const auto sent = cluster.TrafficOf(ServerCluster::WorkerUid(0)).payload_sent;
    return {TensorOf(result, "weight"), static_cast<double>(sent)};
  }
};

TEST_F(FactorsJobTest, SendActivationsAndErrorsInsteadOfGradientsAndLearnTheSame) {
  const Outcome dense = Trained(Job(/*factored=*/false));
  const Outcome factored = Trained(Job(/*factored=*/true));
  ASSERT_EQ(dense.weight.size(), static_cast<std::size_t>(kInputs * kClasses));
  double largest = 0;
  for (std::size_t i = 0; i < dense.weight.size(); ++i) {
    largest = std::max(largest, std::abs(double{dense.weight[i]} - double{factored.weight[i]}));
  }
  EXPECT_LT(largest, 1e-4) << "other orders of addition, over 200 updates";
  // The activations go to each shard. What lies beside is first values, reads and acknowledgements.
  constexpr double kDense = 4.0 * kInputs * kClasses * 2 * kPushes;
  constexpr double kFactored = 4.0 * kPush * (kShardsOfJob * kInputs + kClasses) * 2 * kPushes;
  RecordProperty("bytes_dense", static_cast<int>(dense.sent));
  RecordProperty("bytes_factored", static_cast<int>(factored.sent));
  EXPECT_GE(dense.sent, kDense);
  EXPECT_NEAR(dense.sent - factored.sent, kDense - kFactored, 0.05 * kDense);
}

// Batches of 130, the last of 10 for 16 portions: some workers push factors of nothing.
TEST_F(FactorsJobTest, PortionsOfABatchAddUpAndThoseWithoutSamplesAddNothing) {
  std::vector<std::vector<float>> weights;
  for (const bool factored : {false, true}) {
    v1alpha1::TrainingJobSpec spec = Job(factored);
    spec.mutable_dataset()->set_global_batch_size(130);
    ModelOf(spec).mutable_bulk_synchronous();
    ServerCluster cluster(
        spec, Waves(kInputs, kClasses, kRows),
        [](int) { return std::make_unique<TinyEngine>(kInputs, kClasses, 7); }, NewJobDir());
    cluster.AddServers(2);
    cluster.AddWorkers(4);
    const v1alpha1::Result result = cluster.AwaitResult();
    EXPECT_EQ(result.steps(), 8);
    weights.push_back(TensorOf(result, "weight"));
  }
  EXPECT_THAT(weights[1], ::testing::Pointwise(::testing::FloatNear(1e-4F), weights[0]));
}

// What a server was sent it sends on, and multiplies by itself.
TEST_F(FactorsJobTest, GoDownTheChainAsTheyCameAndSurviveItsHead) {
  v1alpha1::TrainingJobSpec spec = Job(/*factored=*/true);
  const Outcome whole = Trained(spec);
  spec.mutable_exchange()->mutable_parameter_server()->set_replication(2);
  ServerCluster cluster(
      spec, Waves(kInputs, kClasses, kRows),
      [](int) { return std::make_unique<TinyEngine>(kInputs, kClasses, 7); }, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(1);
  ASSERT_TRUE(cluster.AwaitSettled(kPushes / 2));
  cluster.Kill(ServerCluster::ServerUid(0));
  const std::vector<float> weight = TensorOf(cluster.AwaitResult(), "weight");
  ASSERT_EQ(weight.size(), whole.weight.size());
  for (std::size_t i = 0; i < weight.size(); ++i) ASSERT_NEAR(weight[i], whole.weight[i], 1e-4);
}

}  // namespace
}  // namespace starling::worker
