// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/sparse_logistic_regression.h"

#include <cmath>
#include <utility>

#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::workload {
namespace {

// log(1 + exp(-margin)), also for large margins of either sign.
double LossOf(double margin) {
  return margin > 0 ? std::log1p(std::exp(-margin)) : std::log1p(std::exp(margin)) - margin;
}

SparseLoss Logistic() {
  return {
      .second_metric = "accuracy",
      .loss = [](double score, double label) { return LossOf(label > 0 ? score : -score); },
      .slope = [](double score,
                  double label) { return 1 / (1 + std::exp(-score)) - (label > 0 ? 1 : 0); },
      .second = [](double score, double label) { return (score > 0) == (label > 0) ? 1.0 : 0.0; }};
}

}  // namespace

SparseLogisticRegression::SparseLogisticRegression(Samples train, Samples validation, double l2,
                                                   const std::string& data_digest)
    : SparseLinear(Logistic(), std::move(train), std::move(validation), l2, data_digest) {}

data::Form SparseLogisticRegressionForm(const v1alpha1::TrainingJobSpec& spec) {
  constexpr std::int64_t kHashedFeatures = 1 << 20;  // the schema's default
  const v1alpha1::SparseLogisticRegression& model = spec.workload().sparse_logistic_regression();
  return {.kind = data::Form::Kind::kSparse,
          .hashed = model.has_hashed_features() ? model.hashed_features() : kHashedFeatures,
          .hashed_field = "spec.workload.sparseLogisticRegression.hashedFeatures"};
}

Opener BeginSparseLogisticRegression(const v1alpha1::TrainingJobSpec& spec) {
  return [&spec]() -> absl::StatusOr<std::unique_ptr<Workload>> {
    ASSIGN_OR_RETURN(const data::Datasets datasets,
                     data::LoadDatasets(spec, SparseLogisticRegressionForm(spec)));
    return std::make_unique<SparseLogisticRegression>(
        datasets.sparse_train, datasets.sparse_validation,
        spec.workload().sparse_logistic_regression().l2(), datasets.digest);
  };
}

}  // namespace starling::workload
