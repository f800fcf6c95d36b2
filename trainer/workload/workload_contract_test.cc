// SPDX-License-Identifier: Apache-2.0
// What every workload must keep to, for the loops and exchanges rely on it. A workload is a line in
// a list at the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <ostream>
#include <string>

#include "api/spec/metrics.h"
#include "trainer/testing/random_samples.h"
#include "trainer/testing/tiny_engine.h"
#include "trainer/workload/autoencoder.h"
#include "trainer/workload/classification.h"
#include "trainer/workload/language_model.h"
#include "trainer/workload/linear_regression.h"
#include "trainer/workload/regression.h"
#include "trainer/workload/sparse_logistic_regression.h"

namespace starling::workload {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::FloatEq;

constexpr std::int64_t kSamples = 60, kFeatures = 5, kClasses = 7, kSymbols = 3;

// Dense samples with a class and a number each.
data::Datasets Dense(bool numbers) {
  data::Datasets datasets;
  data::Dataset& set = datasets.train;
  set.shape = {kFeatures};
  set.classes = numbers ? 0 : kClasses;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    for (std::int64_t k = 0; k < kFeatures; ++k) {
      set.features.push_back(std::sin(static_cast<float>(i * kFeatures + k)));
    }
    if (numbers) {
      set.targets.push_back(std::cos(static_cast<float>(3 * i)));
    } else {
      set.labels.push_back(i % kClasses);
    }
  }
  datasets.validation = set;
  datasets.digest = "0123456789abcdef";
  return datasets;
}

std::unique_ptr<Workload> NewClassification() {
  return std::make_unique<Classification>(
      Dense(false), std::make_unique<worker::TinyEngine>(kFeatures, kClasses, 7), "tiny");
}
// A symbol follows from the one before it, as far as that goes.
std::unique_ptr<Workload> NewLanguageModel() {
  constexpr std::int64_t kContext = 4;
  data::Text text;
  text.alphabet = *data::Alphabet::OfCharacters("abc");
  text.context = kContext;
  for (std::int64_t i = 0; i <= kSamples * kContext; ++i) {
    text.symbols.push_back(static_cast<std::uint16_t>(i * i % kSymbols));
  }
  data::Datasets datasets;
  datasets.text_train = std::make_shared<const data::Text>(std::move(text));
  datasets.text_validation = datasets.text_train;
  return std::make_unique<LanguageModel>(
      datasets, std::make_unique<worker::TinyEngine>(1, kSymbols, 7), "tiny");
}
std::unique_ptr<Workload> NewLinearRegression() {
  return std::make_unique<LinearRegression>(Dense(true));
}
std::unique_ptr<Workload> NewRegression() {
  return std::make_unique<Regression>(
      Dense(true), std::make_unique<worker::TinyEngine>(kFeatures, 1, 7), "tiny");
}
std::unique_ptr<Workload> NewAutoencoder() {
  return std::make_unique<Autoencoder>(
      Dense(false), std::make_unique<worker::TinyEngine>(kFeatures, kFeatures, 7), "tiny");
}
std::unique_ptr<Workload> NewSparseLogisticRegression() {
  const auto samples = RandomSamples(kSamples, 200, 4);
  return std::make_unique<SparseLogisticRegression>(samples, samples, 0);
}

std::unique_ptr<Workload> NewSparseLinearRegression() {
  const auto samples = RandomSamples(kSamples, 200, 4);
  return std::make_unique<SparseLinearRegression>(samples, samples, 0);
}

struct Case {
  const char* name;
  v1alpha1::Workload::KindCase field;
  std::unique_ptr<Workload> (*make)();
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class WorkloadContract : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    // Away from zero, where gradients of a regression could be equal by chance.
    for (std::size_t i = 0; i < workload_->parameters().size(); ++i) {
      workload_->parameters()[i] += 0.1F * std::sin(static_cast<float>(i));
    }
  }

  static std::vector<std::int64_t> Numbers(std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(end - begin));
    std::iota(numbers.begin(), numbers.end(), begin);
    return numbers;
  }
  Sums Compute(const std::vector<std::int64_t>& samples) {
    const absl::StatusOr<Sums> sums = workload_->Compute(samples, {});
    EXPECT_TRUE(sums.ok()) << sums.status();
    return sums.ok() ? *sums : Sums();
  }
  // Of the rows that the samples use, which is all of them if there is no sparse table.
  std::vector<float> GradientOf(const std::vector<std::int64_t>& samples) {
    Compute(samples);
    const std::span<const float> all = workload_->gradients();
    if (workload_->sparse() == nullptr) return {all.begin(), all.end()};
    std::vector<float> gradient(all.size());
    for (const std::uint64_t row : workload_->sparse()->Rows(samples)) gradient[row] = all[row];
    return gradient;
  }
  const Declaration& declared() const { return workload_->declaration(); }

  const std::unique_ptr<Workload> workload_ = GetParam().make();
};

TEST_P(WorkloadContract, TensorsAndBucketsCoverTheParametersOnce) {
  std::int64_t end = 0;
  for (const engine::Tensor& tensor : declared().tensors) {
    EXPECT_EQ(tensor.offset, end);
    std::int64_t size = 1;
    for (const std::int64_t side : tensor.shape) size *= side;
    EXPECT_EQ(tensor.size, size) << tensor.name;
    end += tensor.size;
  }
  EXPECT_EQ(static_cast<std::size_t>(end), workload_->parameters().size());
  EXPECT_EQ(workload_->gradients().size(), workload_->parameters().size());
  end = 0;
  for (const engine::Bucket& bucket : declared().buckets) {
    EXPECT_EQ(std::exchange(end, bucket.end), bucket.begin);
  }
  EXPECT_EQ(static_cast<std::size_t>(end), workload_->parameters().size());
}

TEST_P(WorkloadContract, MetricsHaveNamesOfTheirOwnAndLossIsTheFirst) {
  std::vector<std::string> names = declared().metrics;
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.front(), "loss");
  EXPECT_LE(names.size(), kMostMetrics);
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_EQ(declared().samples, kSamples);
  EXPECT_EQ(declared().validation_samples, kSamples);
}

// What a job file may name as its target is what is declared.
TEST_P(WorkloadContract, MetricsAreThoseThatTheContractNames) {
  std::vector<std::string> declared_names, named;
  for (const std::string& name : declared().metrics) {
    declared_names.push_back("validation/" + name);
  }
  for (const spec::Metric& metric : spec::MetricsOf(GetParam().field)) {
    named.emplace_back(metric.name);
  }
  EXPECT_THAT(declared_names, ::testing::UnorderedElementsAreArray(named));
}

TEST_P(WorkloadContract, EveryBucketIsPushedOnceInOrderAfterTheSamplesAreLoadedAlsoOfNone) {
  for (const std::int64_t samples : {std::int64_t{7}, std::int64_t{0}}) {
    std::vector<std::int64_t> pushed;
    const Client client = {.loaded = [&] { EXPECT_TRUE(pushed.empty()); },
                           .push = [&](std::int64_t bucket) { pushed.push_back(bucket); }};
    ASSERT_TRUE(workload_->Compute(Numbers(0, samples), client).ok());
    EXPECT_THAT(pushed,
                ElementsAreArray(Numbers(0, static_cast<std::int64_t>(declared().buckets.size()))));
  }
}

TEST(MeansOf, AnExponentialMetricIsEToThePowerOfItsMean) {
  Declaration declared;
  declared.metrics = {"loss", "perplexity"};
  declared.exponentials = {"perplexity"};
  const Values means = MeansOf({{6, 3}, {6, 3}}, declared);
  EXPECT_DOUBLE_EQ(means[0], 2);
  EXPECT_DOUBLE_EQ(means[1], std::exp(2.0));
  EXPECT_EQ(MeansOf({{0, 0}, {0, 0}}, declared), Values()) << "nothing was counted";
}

TEST(MeansOf, ARootIsThatOfItsMean) {
  Declaration declared;
  declared.metrics = {"loss", "rmse"};
  declared.roots = {"rmse"};
  EXPECT_DOUBLE_EQ(MeansOf({{8, 2}, {8, 2}}, declared)[0], 4);
  EXPECT_DOUBLE_EQ(MeansOf({{8, 2}, {8, 2}}, declared)[1], 2);
}

TEST(Regression, ExplainsAllOfWhatItPredictsRightAndNothingByTheMean) {
  data::Dataset set;
  set.outputs = 2;
  set.targets = {1, 5, 2, 5, 3, 5};
  const std::vector<double> variances = VariancesOf(set);
  EXPECT_THAT(variances, ElementsAre(DoubleNear(2.0 / 3, 1e-12), DoubleNear(0, 1e-12)));
  const std::vector<double> none = {0, 0}, by_mean = {2, 0};
  EXPECT_DOUBLE_EQ(Explained(none, variances, 3) / 3, 0.5)
      << "a constant column has nothing to explain";
  EXPECT_NEAR(Explained(by_mean, variances, 3) / 3, 0, 1e-12);
}

TEST_P(WorkloadContract, NoSamplesCountNothing) {
  const Sums sums = Compute({});
  ASSERT_EQ(sums.size(), declared().metrics.size());
  EXPECT_THAT(sums, Each(Sum{0, 0}));
}

// Batches are cut into groups and shares, whose gradients and sums are added.
TEST_P(WorkloadContract, GradientsAndSumsOfAWholeAreThoseOfItsPartsAdded) {
  const Sums whole = Compute(Numbers(0, 30));
  const std::vector<float> gradient = GradientOf(Numbers(0, 30));
  Sums added = Compute(Numbers(0, 11));
  Add(Compute(Numbers(11, 30)), added);
  std::vector<float> parts = GradientOf(Numbers(0, 11));
  const std::vector<float> second = GradientOf(Numbers(11, 30));
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] += second[i];
  for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_NEAR(parts[i], gradient[i], 1e-4);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(added[i].sum, whole[i].sum, 1e-4);
    EXPECT_EQ(added[i].count, whole[i].count);
  }
}

TEST_P(WorkloadContract, AGradientIsTheSlopeOfTheSummedLoss) {
  const std::vector<std::int64_t> all = Numbers(0, kSamples);
  const std::vector<float> gradient = GradientOf(all);
  constexpr float kStep = 1e-2F;
  double largest = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    float& parameter = workload_->parameters()[i];
    const float before = parameter;
    parameter = before + kStep;
    const double above = workload_->Evaluate(0, kSamples)->front().sum;
    parameter = before - kStep;
    const double below = workload_->Evaluate(0, kSamples)->front().sum;
    parameter = before;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * double{kStep}), 2e-2) << i;
    largest = std::max(largest, std::abs(double{gradient[i]}));
  }
  EXPECT_GT(largest, 0.5) << "or the check would hold for no gradient at all";
}

TEST_P(WorkloadContract, TheSameSamplesScoreAlikeInTrainingAndInValidation) {
  const Sums trained = Compute(Numbers(10, 40));
  const absl::StatusOr<Sums> validated = workload_->Evaluate(10, 40);
  ASSERT_TRUE(validated.ok()) << validated.status();
  ASSERT_EQ(validated->size(), trained.size());
  for (std::size_t i = 0; i < trained.size(); ++i) {
    EXPECT_NEAR((*validated)[i].sum, trained[i].sum, 1e-9) << declared().metrics[i];
    EXPECT_EQ((*validated)[i].count, trained[i].count);
  }
}

TEST_P(WorkloadContract, AnotherOfTheSameJobHasEqualParametersAndGradients) {
  const std::unique_ptr<Workload> first = GetParam().make(), second = GetParam().make();
  EXPECT_TRUE(std::ranges::equal(first->parameters(), second->parameters()));
  const std::vector<std::int64_t> samples = {3, 1, 4, 1, 5};
  EXPECT_EQ(*first->Compute(samples, {}), *second->Compute(samples, {}));
  EXPECT_TRUE(std::ranges::equal(first->gradients(), second->gradients()));
}

// Of those whose samples use only some of the parameters.
class SparseWorkloadContract : public WorkloadContract {};

TEST_P(SparseWorkloadContract, ItsTablesRowsAreAllThatComputeAndDescendUse) {
  SparseTable* table = workload_->sparse();
  ASSERT_NE(table, nullptr);
  const std::vector<std::int64_t> samples = {2, 9};
  const std::vector<std::uint64_t> rows = table->Rows(samples);
  EXPECT_TRUE(std::ranges::is_sorted(rows));
  EXPECT_TRUE(std::ranges::includes(table->AllRows(), rows));
  EXPECT_TRUE(std::ranges::includes(table->AllRows(), table->ValidationRows()));
  const Sums before = Compute(samples);
  std::vector<bool> used(workload_->parameters().size());
  for (const std::uint64_t row : rows) used[row] = true;
  for (std::size_t row = 0; row < used.size(); ++row) {
    if (!used[row]) workload_->parameters()[row] = 1000;
  }
  EXPECT_EQ(Compute(samples), before) << "rows of others do not matter";
  EXPECT_EQ(table->Descend(samples, 0), before) << "at rate 0 nothing has changed in between";
  table->Descend(samples, 0.5);
  for (std::size_t row = 0; row < used.size(); ++row) {
    if (used[row]) continue;
    EXPECT_THAT(workload_->parameters()[row], FloatEq(1000)) << row;
  }
}

const Case kDense[] = {
    {"Classification", v1alpha1::Workload::kClassification, NewClassification},
    {"LanguageModel", v1alpha1::Workload::kLanguageModel, NewLanguageModel},
    {"LinearRegression", v1alpha1::Workload::kLinearRegression, NewLinearRegression},
    {"Regression", v1alpha1::Workload::kRegression, NewRegression},
    {"Autoencoder", v1alpha1::Workload::kAutoencoder, NewAutoencoder}};
const Case kSparse[] = {
    {"LinearRegression", v1alpha1::Workload::kLinearRegression, NewSparseLinearRegression},
    {"LogisticRegression", v1alpha1::Workload::kSparseLogisticRegression,
     NewSparseLogisticRegression}};

std::string NameOf(const ::testing::TestParamInfo<Case>& one) { return one.param.name; }

INSTANTIATE_TEST_SUITE_P(Dense, WorkloadContract, ::testing::ValuesIn(kDense), NameOf);
INSTANTIATE_TEST_SUITE_P(Sparse, WorkloadContract, ::testing::ValuesIn(kSparse), NameOf);
INSTANTIATE_TEST_SUITE_P(Sparse, SparseWorkloadContract, ::testing::ValuesIn(kSparse), NameOf);

}  // namespace
}  // namespace starling::workload
