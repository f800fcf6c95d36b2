// SPDX-License-Identifier: Apache-2.0
// Whole jobs with the KKT filter (Kkt in shard_gradient.h, `zeros` in parameter_server/filters.h):
// the model is what it is without, bit by bit, and what is left out is what cannot change.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "trainer/testing/sparse_job.h"

namespace starling::worker {
namespace {

using ::testing::SizeIs;

constexpr std::int64_t kLeaseSamples = 2000, kEpochs = 10, kLeases = 40;  // of 8000 samples
constexpr double kPenalty = 8e-4;

// Logistic regression that counts the rows that cannot change when it has made their gradients, and
// puts 0 where they are up to `threshold`.
class LookingWorkload final : public workload::Workload {
 public:
  LookingWorkload(const std::shared_ptr<const data::SparseDataset>& samples, double threshold)
      : LookingWorkload(std::make_unique<workload::SparseLogisticRegression>(samples, samples, 0),
                        threshold) {}

  std::span<float> parameters() override { return inner_->parameters(); }
  std::span<float> gradients() override { return inner_->gradients(); }
  absl::StatusOr<workload::Sums> Compute(std::span<const std::int64_t> samples,
                                         const workload::Client& client) override {
    return inner_->Compute(samples, {.loaded = client.loaded, .push = [&](std::int64_t bucket) {
                                       const float scale = 1 / static_cast<float>(samples.size());
                                       for (const std::uint64_t row : inner_->Rows(samples))
                                         Look(row, scale);
                                       client.push(bucket);
                                     }});
  }
  absl::StatusOr<workload::Sums> Evaluate(std::int64_t begin, std::int64_t end) override {
    return inner_->Evaluate(begin, end);
  }
  workload::SparseTable* sparse() override { return inner_.get(); }

  double rows() const { return static_cast<double>(rows_); }
  double fixed() const { return static_cast<double>(fixed_); }

 private:
  LookingWorkload(std::unique_ptr<workload::SparseLogisticRegression> inner, double threshold)
      : Workload(inner->declaration()), inner_(std::move(inner)), threshold_(threshold) {}

  void Look(std::uint64_t row, float scale) {
    float& gradient = inner_->gradients()[row];
    const bool is_zero = inner_->parameters()[row] == 0;
    ++rows_;
    if (is_zero && std::abs(gradient * scale) <= static_cast<float>(kPenalty)) ++fixed_;
    if (is_zero && std::abs(gradient * scale) <= static_cast<float>(threshold_)) gradient = 0;
  }

  const std::unique_ptr<workload::SparseLogisticRegression> inner_;
  const double threshold_;
  std::atomic<std::int64_t> rows_ = 0, fixed_ = 0;
};

class KktJobTest : public SparseJobTest {
 protected:
  static v1alpha1::TrainingJobSpec Job(bool kkt) {
    v1alpha1::TrainingJobSpec spec = VisitJob(kEpochs);
    spec.mutable_workload()->mutable_sparse_logistic_regression();
    spec.mutable_dataset()->set_global_batch_size(kLeaseSamples);
    spec.mutable_dataset()->mutable_validation()->mutable_libsvm()->set_uri("in memory here");
    spec.mutable_validation()->set_every_epochs(1);
    v1alpha1::ProximalGradient& rule = *spec.mutable_optimizer()->mutable_proximal_gradient();
    rule.set_learning_rate(200);  // gradients are means: each feature is in one sample of 200
    rule.set_l1(kPenalty);
    v1alpha1::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
    server.set_replication(1);
    spec.mutable_compression()->set_kkt_filter(kkt);
    return spec;
  }
  struct Run {
    std::vector<float> weights;
    double loss = 0;
    double sent = 0;   // bytes, by the worker
    double rows = 0;   // that it pushed
    double fixed = 0;  // of them could not change
  };
  // One worker, so that bits do not depend on who is first. `threshold`: of the worker's gradients.
  Run Trained(const v1alpha1::TrainingJobSpec& spec, double threshold = -1) {
    ServerCluster cluster(
        spec, [&](int) { return std::make_unique<LookingWorkload>(samples_, threshold); },
        NewJobDir());
    cluster.AddServers(1);
    cluster.AddWorkers(1);
    const v1alpha1::Result result = cluster.AwaitResult();
    EXPECT_EQ(result.steps(), kLeases);
    const auto& workload = cluster.WorkloadOf<LookingWorkload>(0);
    return {TensorOf(result, "weight"), result.metrics().at("validation/loss"),
            static_cast<double>(cluster.SentBy(0)), workload.rows(), workload.fixed()};
  }
  const std::shared_ptr<const data::SparseDataset> samples_ = LearnableSamples();
};

// What a push of rows, of which some are left out, is shorter by: a bit each for their values.
// Rests and wakings differ from run to run.
void ExpectSaved(double without, double with, double rows, double fixed, double bytes_of_a_value) {
  const double saved = fixed * bytes_of_a_value - rows / 8;
  EXPECT_NEAR(without - with, saved, 0.05 * saved);
}

TEST_F(KktJobTest, LeavesTheModelAsItIsToTheBitAndSendsABitForWhatCannotChange) {
  const Run without = Trained(Job(false)), with = Trained(Job(true));
  ASSERT_THAT(with.weights, SizeIs(2000));
  EXPECT_EQ(with.weights, without.weights);
  EXPECT_EQ(with.fixed, without.fixed);
  const auto zeros = std::ranges::count(with.weights, 0.0F);
  EXPECT_GT(zeros, 500) << "the penalty does hold weights at 0";
  EXPECT_LT(zeros, 1900) << "and not all";
  EXPECT_LT(with.loss, 0.68) << "it does learn: a coin's loss is 0.69";
  EXPECT_GT(with.fixed, 0.3 * with.rows);
  RecordProperty("bytes_without", static_cast<int>(without.sent));
  RecordProperty("bytes_with", static_cast<int>(with.sent));
  ExpectSaved(without.sent, with.sent, with.rows, with.fixed, sizeof(float));
}

// Listed or named, whole or rounded: what is saved is what the zeros would have taken.
TEST_F(KktJobTest, GoesWithTheOtherFilters) {
  const auto job = [](bool kkt, bool named, bool narrow) {
    v1alpha1::TrainingJobSpec spec = Job(kkt);
    spec.mutable_compression()->set_key_cache(named);
    if (narrow) spec.mutable_compression()->mutable_codec()->mutable_bfloat16();
    return spec;
  };
  for (const bool named : {true, false}) {
    const bool narrow = named;
    const Run without = Trained(job(false, named, narrow)),
              with = Trained(job(true, named, narrow));
    EXPECT_EQ(with.weights, without.weights);
    ExpectSaved(without.sent, with.sent, with.rows, with.fixed, named ? 2 : 4);
  }
}

// The controls: a worker that leaves out what is up to the penalty changes nothing, one that leaves
// out twice as much makes another model.
TEST_F(KktJobTest, AThresholdAboveThePenaltyMakesAnotherModel) {
  const Run as_it_is = Trained(Job(false));
  EXPECT_EQ(Trained(Job(false), kPenalty).weights, as_it_is.weights);
  const Run too_high = Trained(Job(false), 2 * kPenalty);
  EXPECT_NE(too_high.weights, as_it_is.weights);
  EXPECT_GT(too_high.loss, as_it_is.loss + 1e-4);
}

// Others change rows meanwhile, and what has died comes back with whole entries: each batch counts
// once, and the model is as good.
TEST_F(KktJobTest, WhoeverDiesLeasesAreDoneOnceAndTheModelIsAsGood) {
  double losses[2] = {};
  for (const bool kkt : {false, true}) {
    v1alpha1::TrainingJobSpec spec = Job(kkt);
    spec.mutable_dataset()->set_global_batch_size(kLeaseSamples / 4);
    spec.mutable_optimizer()->mutable_proximal_gradient()->set_learning_rate(50);
    spec.mutable_exchange()->mutable_parameter_server()->set_replication(2);
    const std::string folder = NewJobDir();
    ServerCluster cluster(spec, Logistic(samples_), folder);
    cluster.AddServers(2);
    cluster.AddWorkers(2);
    ASSERT_TRUE(cluster.AwaitSettled(20));
    cluster.Kill(ServerCluster::ServerUid(0));
    ASSERT_TRUE(cluster.AwaitSettled(50));
    cluster.Restart(ServerCluster::ServerUid(0));
    cluster.Kill(ServerCluster::WorkerUid(1));
    ASSERT_TRUE(cluster.AwaitSettled(80));
    cluster.Restart(ServerCluster::WorkerUid(1));
    ASSERT_TRUE(cluster.AwaitSettled(110));
    cluster.Kill(ServerCluster::ServerUid(1));
    const v1alpha1::Result result = cluster.AwaitResult();
    EXPECT_EQ(result.steps(), 4 * kLeases);
    EXPECT_THAT(LinesOf(folder + "/audit/steps.jsonl"), SizeIs(4 * kLeases));
    losses[kkt ? 1 : 0] = result.metrics().at("validation/loss");
  }
  EXPECT_LT(losses[0], 0.68);
  EXPECT_NEAR(losses[1], losses[0], 0.02 * losses[0]);
}

}  // namespace
}  // namespace starling::worker
