// SPDX-License-Identifier: Apache-2.0
// Regression by a network (workload.regression): numbers of each sample are predicted, as they
// stand in the data. Nobody scales them: losses, errors and predictions are in their units.
//
// Its metrics are the loss, the root of the mean squared error (rmse) and the share of the numbers'
// variance that is explained (r2: 1 at best, 0 for who always says the mean). Of several columns
// rmse is over all of their numbers, r2 the mean over the columns, as scikit-learn has them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/load_datasets.h"
#include "trainer/engine/engine_library.h"
#include "trainer/workload/network_engine.h"
#include "trainer/workload/workloads.h"

namespace starling::workload {

// The variance of each number to be predicted, over the set; 0 of a column that never varies.
std::vector<double> VariancesOf(const data::Dataset& set);
// The sum over samples of what is explained of them, from `squares` by column: how r2 is counted.
double Explained(std::span<const double> squares, std::span<const double> variances,
                 double samples);

// Confined to one thread.
class Regression final : public Workload {
 public:
  // `datasets` hold numbers to be predicted. `description` goes into model files.
  Regression(data::Datasets datasets, std::unique_ptr<engine::Engine> engine,
             std::string numeric_identity, Description description = {});

  std::span<float> parameters() override { return engine_->parameters(); }
  std::span<float> gradients() override { return engine_->gradients(); }
  bool PlaceGradients(std::span<float> memory) override { return engine_->PlaceGradients(memory); }
  absl::StatusOr<Sums> Compute(std::span<const std::int64_t> samples,
                               const Client& client) override;
  absl::StatusOr<Sums> Evaluate(std::int64_t begin, std::int64_t end) override;
  void KeepFactors() override { engine_->KeepFactors(); }
  std::optional<engine::Factors> FactorsOf(std::size_t index) const override {
    return engine_->FactorsOf(index);
  }

 private:
  const data::Datasets datasets_;
  const std::unique_ptr<engine::Engine> engine_;
  const std::vector<double> train_variances_;
  const std::vector<double> validation_variances_;
  std::vector<float> features_;
  std::vector<float> targets_;
};

data::Form RegressionForm(const v1alpha1::TrainingJobSpec& spec);
Opener BeginRegression(const v1alpha1::TrainingJobSpec& spec);

}  // namespace starling::workload
