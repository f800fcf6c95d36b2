// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/linear_regression.h"

#include <cmath>
#include <utility>

#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/kernels/span_math.h"
#include "trainer/workload/dense.h"

namespace starling::workload {
namespace {

constexpr std::int64_t kHashedFeatures = 1 << 20;  // by default

Declaration DeclarationOf(const data::Datasets& datasets) {
  const std::int64_t features = datasets.train.SampleSize();
  Declaration declaration = DeclareDense(datasets);
  declaration.metrics = {"loss", "meanAbsoluteError"};
  declaration.tensors = {{"bias", {1}, 0, 1}, {"weight", {1, features}, 1, features}};
  declaration.buckets = {{0, 1 + features}};
  declaration.numeric_identity = "linear";
  return declaration;
}

std::span<const float> FeaturesOf(const data::Dataset& set, std::int64_t sample) {
  const auto width = static_cast<std::size_t>(set.SampleSize());
  return std::span(set.features).subspan(static_cast<std::size_t>(sample) * width, width);
}

SparseLoss SquaredError() {
  return {.second_metric = "meanAbsoluteError",
          .loss = [](double score, double label) { return (score - label) * (score - label); },
          .slope = [](double score, double label) { return 2 * (score - label); },
          .second = [](double score, double label) { return std::abs(score - label); }};
}

void Count(double error, Sums& sums) {
  sums[0].sum += error * error;
  sums[1].sum += std::abs(error);
  for (Sum& one : sums) one.count += 1;
}

}  // namespace

LinearRegression::LinearRegression(data::Datasets datasets, double l2)
    : Workload(DeclarationOf(datasets)),
      datasets_(std::move(datasets)),
      l2_(l2),
      parameters_(static_cast<std::size_t>(datasets_.train.SampleSize() + 1)),
      gradients_(parameters_.size()) {}

double LinearRegression::ErrorOf(const data::Dataset& set, std::int64_t sample) const {
  return kernels::Dot(std::span(parameters_).subspan(1), FeaturesOf(set, sample)) +
         double{parameters_[0]} - double{set.targets[static_cast<std::size_t>(sample)]};
}

absl::StatusOr<Sums> LinearRegression::Compute(std::span<const std::int64_t> samples,
                                               const Client& client) {
  client.loaded();
  Sums sums(declaration().metrics.size());
  const auto weights = std::span(parameters_).subspan(1);
  const auto slopes = std::span(gradients_).subspan(1);
  kernels::Fill(0, gradients_);
  kernels::Axpy(static_cast<float>(l2_ * static_cast<double>(samples.size())), weights, slopes);
  for (const std::int64_t sample : samples) {
    const double error = ErrorOf(datasets_.train, sample);
    Count(error, sums);
    const auto slope = static_cast<float>(2 * error);
    gradients_[0] += slope;
    kernels::Axpy(slope, FeaturesOf(datasets_.train, sample), slopes);
  }
  client.push(0);
  return sums;
}

absl::StatusOr<Sums> LinearRegression::Evaluate(std::int64_t begin, std::int64_t end) {
  Sums sums(declaration().metrics.size());
  for (std::int64_t sample = begin; sample < end; ++sample) {
    Count(ErrorOf(*datasets_.validation, sample), sums);
  }
  return sums;
}

SparseLinearRegression::SparseLinearRegression(Samples train, Samples validation, double l2,
                                               const std::string& data_digest)
    : SparseLinear(SquaredError(), std::move(train), std::move(validation), l2, data_digest) {}

data::Form LinearRegressionForm(const v1alpha1::TrainingJobSpec& spec) {
  if (!spec.dataset().train().has_libsvm()) return {.kind = data::Form::Kind::kNumbers};
  const v1alpha1::LinearRegression& model = spec.workload().linear_regression();
  return {.kind = data::Form::Kind::kSparse,
          .hashed = model.has_hashed_features() ? model.hashed_features() : kHashedFeatures,
          .hashed_field = "spec.workload.linearRegression.hashedFeatures"};
}

Opener BeginLinearRegression(const v1alpha1::TrainingJobSpec& spec) {
  return [&spec]() -> absl::StatusOr<std::unique_ptr<Workload>> {
    ASSIGN_OR_RETURN(data::Datasets datasets, data::LoadDatasets(spec, LinearRegressionForm(spec)));
    const double l2 = spec.workload().linear_regression().l2();
    if (datasets.sparse_train == nullptr) {
      return std::make_unique<LinearRegression>(std::move(datasets), l2);
    }
    return std::make_unique<SparseLinearRegression>(
        datasets.sparse_train, datasets.sparse_validation, l2, datasets.digest);
  };
}

}  // namespace starling::workload
