// SPDX-License-Identifier: Apache-2.0
// Linear regression over both exchanges: training ends at the least-squares solution, which is
// solved here by the normal equations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "common/random/philox.h"
#include "trainer/testing/visit_job.h"
#include "trainer/testing/worker_cluster.h"
#include "trainer/worker/course.h"
#include "trainer/workload/linear_regression.h"

namespace starling::worker {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSamples = 96, kFeatures = 4;
// How far the weights may be from the solution at the end, each of them.
constexpr double kDistance = 1e-4;

// Features of mean 0 and variance 1; targets are a line of them and noise.
data::Datasets Noisy() {
  const random::Philox features(1, random::Stream::kSyntheticTrain, 0);
  const random::Philox noise(1, random::Stream::kSyntheticTrain, 1);
  data::Datasets datasets;
  data::Dataset& set = datasets.train;
  set.shape = {kFeatures};
  for (std::int64_t i = 0; i < kSamples; ++i) {
    double target = 3 + 0.5 * noise.Normal(static_cast<std::uint64_t>(i));
    for (std::int64_t k = 0; k < kFeatures; ++k) {
      const double feature = features.Normal(static_cast<std::uint64_t>(i * kFeatures + k));
      set.features.push_back(static_cast<float>(feature));
      target += static_cast<double>(k - 1) * feature;
    }
    set.targets.push_back(static_cast<float>(target));
  }
  datasets.validation = set;
  datasets.digest = "0123456789abcdef";
  return datasets;
}

// The bias, then the weights: Gaussian elimination of the normal equations. A column that depends
// on others gets 0.
std::vector<double> LeastSquares(const data::Dataset& set) {
  const auto width = static_cast<std::size_t>(set.SampleSize());
  const std::size_t n = width + 1;
  std::vector<std::vector<double>> rows(n, std::vector<double>(n + 1));
  std::vector<double> sample(n + 1, 1);
  for (std::size_t i = 0; i < set.targets.size(); ++i) {
    for (std::size_t k = 0; k < width; ++k) sample[k + 1] = set.features[i * width + k];
    sample[n] = set.targets[i];
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b <= n; ++b) rows[a][b] += sample[a] * sample[b];
    }
  }
  std::vector<std::size_t> solved;
  for (std::size_t column = 0; column < n; ++column) {
    // The equations are symmetric and not negative: their diagonal is what is left of a column.
    if (rows[column][column] < 1e-6 * static_cast<double>(set.targets.size())) continue;
    solved.push_back(column);
    for (std::size_t row = 0; row < n; ++row) {
      if (row == column) continue;
      const double factor = rows[row][column] / rows[column][column];
      for (std::size_t b = 0; b <= n; ++b) rows[row][b] -= factor * rows[column][b];
    }
  }
  std::vector<double> solution(n);
  for (const std::size_t column : solved) solution[column] = rows[column][n] / rows[column][column];
  return solution;
}

double MeanSquaredError(const data::Dataset& set, const std::vector<double>& solution) {
  const auto width = static_cast<std::size_t>(set.SampleSize());
  double sum = 0;
  for (std::size_t i = 0; i < set.targets.size(); ++i) {
    double error = solution[0] - double{set.targets[i]};
    for (std::size_t k = 0; k < width; ++k) {
      error += solution[k + 1] * double{set.features[i * width + k]};
    }
    sum += error * error;
  }
  return sum / static_cast<double>(set.targets.size());
}

// For the control: the samples that it is given are left out, and no one is told.
class Idle final : public workload::Workload {
 public:
  explicit Idle(std::unique_ptr<workload::Workload> inner)
      : Workload(inner->declaration()), inner_(std::move(inner)) {}
  std::span<float> parameters() override { return inner_->parameters(); }
  std::span<float> gradients() override { return inner_->gradients(); }
  absl::StatusOr<workload::Sums> Compute(std::span<const std::int64_t> /*samples*/,
                                         const workload::Client& client) override {
    return inner_->Compute({}, client);
  }
  absl::StatusOr<workload::Sums> Evaluate(std::int64_t begin, std::int64_t end) override {
    return inner_->Evaluate(begin, end);
  }

 private:
  const std::unique_ptr<workload::Workload> inner_;
};

v1alpha1::TrainingJobSpec Job(std::int64_t steps, std::int64_t batch) {
  v1alpha1::TrainingJobSpec spec;
  spec.set_seed(7);
  spec.mutable_dataset()->set_global_batch_size(batch);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.2);
  spec.mutable_dataset()->mutable_validation()->mutable_csv()->set_uri("in memory here");
  spec.mutable_validation()->set_every_epochs(1000);
  spec.mutable_stop()->set_steps(steps);
  spec.mutable_checkpoint()->set_keep(1);
  return spec;
}

// Over which exchange, and whether one of the workers leaves its samples out.
class LinearRegressionJobTest : public ClientWorkerTest {
 protected:
  static std::unique_ptr<workload::Workload> Make(const data::Datasets& datasets, bool idle) {
    auto workload = std::make_unique<workload::LinearRegression>(datasets);
    if (idle) return std::make_unique<Idle>(std::move(workload));
    return workload;
  }
  v1alpha1::Result ByAllReduce(v1alpha1::TrainingJobSpec spec, const data::Datasets& datasets,
                               bool one_is_idle = false) {
    spec.mutable_exchange()->mutable_all_reduce();
    int made = 0;
    Cluster cluster(spec, NewJobDir(), [&](const std::string& /*numeric_identity*/) {
      return Make(datasets, one_is_idle && made++ == 1);
    });
    for (int worker = 0; worker < 3; ++worker) cluster.Add();
    cluster.PublishNow({0, 1, 2});
    EXPECT_NE(cluster.AwaitModel(0), "");
    return cluster.TrainingOf(0).result();
  }
  v1alpha1::Result ByServers(v1alpha1::TrainingJobSpec spec, const data::Datasets& datasets,
                             bool one_is_idle = false) {
    v1alpha1::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
    server.set_replication(1);
    server.set_samples_per_push(spec.dataset().global_batch_size() / 2);
    server.mutable_consistency()->mutable_bulk_synchronous();
    ServerCluster cluster(
        spec, [&](int worker) { return Make(datasets, one_is_idle && worker == 1); }, NewJobDir());
    cluster.AddServers(1);
    cluster.AddWorkers(2);
    return cluster.AwaitResult();
  }
  static std::vector<double> SolutionOf(const v1alpha1::Result& result) {
    std::vector<double> solution;
    for (const char* tensor : {"bias", "weight"}) {
      for (const float value : TensorOf(result, tensor)) solution.push_back(double{value});
    }
    return solution;
  }
  static double Distance(const v1alpha1::Result& result, const data::Datasets& datasets) {
    const std::vector<double> found = SolutionOf(result), solved = LeastSquares(datasets.train);
    EXPECT_EQ(found.size(), solved.size());
    double distance = 0;
    for (std::size_t i = 0; i < solved.size(); ++i) {
      distance = std::max(distance, std::abs(found[i] - solved[i]));
    }
    return distance;
  }
};

TEST_F(LinearRegressionJobTest, ByAllReduceWeightsEndAtTheLeastSquaresSolution) {
  const data::Datasets datasets = Noisy();
  const v1alpha1::Result result = ByAllReduce(Job(60, kSamples), datasets);
  EXPECT_LT(Distance(result, datasets), kDistance);
  EXPECT_NEAR(result.metrics().at("validation/loss"),
              MeanSquaredError(datasets.train, LeastSquares(datasets.train)), 1e-6);
  EXPECT_TRUE(result.metrics().contains("validation/meanAbsoluteError"));
  EXPECT_TRUE(result.metrics().contains("meanAbsoluteError"));
  EXPECT_FALSE(result.metrics().contains("validation/accuracy"));
}

TEST_F(LinearRegressionJobTest, ByServersWeightsEndAtTheLeastSquaresSolution) {
  const data::Datasets datasets = Noisy();
  const v1alpha1::Result result = ByServers(Job(60, kSamples), datasets);
  EXPECT_LT(Distance(result, datasets), kDistance);
  EXPECT_NEAR(result.metrics().at("validation/loss"),
              MeanSquaredError(datasets.train, LeastSquares(datasets.train)), 1e-6);
  EXPECT_TRUE(result.metrics().contains("validation/meanAbsoluteError"));
  EXPECT_FALSE(result.metrics().contains("validation/accuracy"));
}

// The controls: the distance does tell.
TEST_F(LinearRegressionJobTest, AWorkerThatLeavesItsSamplesOutIsSeen) {
  const data::Datasets datasets = Noisy();
  EXPECT_GT(Distance(ByAllReduce(Job(60, kSamples), datasets, /*one_is_idle=*/true), datasets),
            10 * kDistance);
  EXPECT_GT(Distance(ByServers(Job(60, kSamples), datasets, /*one_is_idle=*/true), datasets),
            10 * kDistance);
}

TEST_F(LinearRegressionJobTest, OneTargetThatIsOffMovesTheSolutionFurtherThanTheDistance) {
  data::Datasets datasets = Noisy();
  const v1alpha1::Result result = ByAllReduce(Job(60, kSamples), datasets);
  datasets.train.targets[17] += 0.5F;
  EXPECT_GT(Distance(result, datasets), 10 * kDistance);
}

TEST_F(LinearRegressionJobTest, ATargetMayNameAnyMetricOfTheWorkload) {
  v1alpha1::TrainingJobSpec spec = Job(1000, kSamples / 2);
  spec.mutable_validation()->set_every_epochs(1);
  spec.mutable_stop()->mutable_target()->set_metric("validation/meanAbsoluteError");
  spec.mutable_stop()->mutable_target()->set_at_most(0.6);
  for (const v1alpha1::Result& result : {ByAllReduce(spec, Noisy()), ByServers(spec, Noisy())}) {
    EXPECT_TRUE(result.target_reached());
    EXPECT_LE(result.metrics().at("validation/meanAbsoluteError"), 0.6);
    EXPECT_LT(result.steps(), 1000);
  }
  spec.mutable_stop()->mutable_target()->set_metric("validation/accuracy");
  workload::LinearRegression workload(Noisy());
  EXPECT_THAT(std::string(CheckTarget(spec.stop(), workload.declaration().metrics).message()),
              HasSubstr("it has validation/loss, validation/meanAbsoluteError"));
}

// Real samples: the brightness of a pixel of handwritten digits from all others and the digit. Of
// 64 features some never vary and some nearly depend on others, so that it is the error that is
// compared, and not the weights.
TEST_F(LinearRegressionJobTest, OnDigitsTheErrorIsThatOfTheSolutionWithinOnePercent) {
  v1alpha1::TrainingJobSpec spec;
  const auto fill = [](v1alpha1::DataSource& source, const char* file) {
    source.mutable_csv()->set_uri(std::string(STARLING_SOURCE_DIR "/examples/data/") + file);
    source.mutable_csv()->set_label_column("p28");
  };
  fill(*spec.mutable_dataset()->mutable_train(), "digits-train.csv");
  fill(*spec.mutable_dataset()->mutable_validation(), "digits-test.csv");
  const absl::StatusOr<data::Datasets> datasets =
      data::LoadDatasets(spec, workload::LinearRegressionForm(spec));
  ASSERT_TRUE(datasets.ok()) << datasets.status();
  const double least = MeanSquaredError(datasets->train, LeastSquares(datasets->train));

  v1alpha1::TrainingJobSpec job = Job(400, datasets->train.size());
  job.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.02);
  job.mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
  for (const bool servers : {false, true}) {
    const v1alpha1::Result result =
        servers ? ByServers(job, *datasets) : ByAllReduce(job, *datasets);
    const double reached = MeanSquaredError(datasets->train, SolutionOf(result));
    RecordProperty(servers ? "by_servers" : "by_all_reduce", absl::StrCat(reached / least));
    EXPECT_GE(reached, least * (1 - 1e-6)) << "nothing is less than the least";
    EXPECT_LE(reached, 1.01 * least);
  }
  job.mutable_stop()->set_steps(20);
  EXPECT_GT(MeanSquaredError(datasets->train, SolutionOf(ByAllReduce(job, *datasets))),
            1.01 * least)
      << "the control: training that ends too soon is seen";
}

}  // namespace
}  // namespace starling::worker
