// SPDX-License-Identifier: Apache-2.0
// Linear regression (workload.linearRegression), fitted by least squares: of dense samples a weight
// for each feature and a bias; of sparse ones a weight for each hashed feature, and no bias, for
// which a feature that is always 1 can stand. Metrics: the mean squared error, which
// is the loss, and the mean absolute error. Nothing here needs libtorch.
#pragma once

#include <vector>

#include "trainer/data/load_datasets.h"
#include "trainer/workload/sparse_linear.h"
#include "trainer/workload/workloads.h"

namespace starling::workload {

// Confined to one thread.
class LinearRegression final : public Workload {
 public:
  // `datasets` hold targets. `l2`: the penalty l2 / 2 |w|^2 of a sample's loss, without the bias;
  // metrics are without it.
  explicit LinearRegression(data::Datasets datasets, double l2 = 0);

  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradients() override { return gradients_; }
  absl::StatusOr<Sums> Compute(std::span<const std::int64_t> samples,
                               const Client& client) override;
  absl::StatusOr<Sums> Evaluate(std::int64_t begin, std::int64_t end) override;

 private:
  // Prediction less target.
  double ErrorOf(const data::Dataset& set, std::int64_t sample) const;

  const data::Datasets datasets_;
  const double l2_;
  // The bias, then the weights: all of them zero at first.
  std::vector<float> parameters_;
  std::vector<float> gradients_;
};

// Of sparse samples.
class SparseLinearRegression final : public SparseLinear {
 public:
  SparseLinearRegression(Samples train, Samples validation, double l2,
                         const std::string& data_digest = "");
};

data::Form LinearRegressionForm(const v1alpha1::TrainingJobSpec& spec);
Opener BeginLinearRegression(const v1alpha1::TrainingJobSpec& spec);

}  // namespace starling::workload
