// SPDX-License-Identifier: Apache-2.0
// An autoencoder (workload.autoencoder): a network that is to give each sample back, as it is after
// it has been scaled. Its metrics are the loss and the root of the mean squared error (rmse);
// labels are not looked at.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/load_datasets.h"
#include "trainer/engine/engine_library.h"
#include "trainer/workload/dense.h"
#include "trainer/workload/network_engine.h"
#include "trainer/workload/workloads.h"

namespace starling::workload {

// Confined to one thread.
class Autoencoder final : public Workload {
 public:
  // `description` goes into model files.
  Autoencoder(data::Datasets datasets, std::unique_ptr<engine::Engine> engine,
              std::string numeric_identity, Description description = {});

  std::span<float> parameters() override { return engine_->parameters(); }
  std::span<float> gradients() override { return engine_->gradients(); }
  bool PlaceGradients(std::span<float> memory) override { return engine_->PlaceGradients(memory); }
  absl::StatusOr<Sums> Compute(std::span<const std::int64_t> samples,
                               const Client& client) override;
  absl::StatusOr<Sums> Evaluate(std::int64_t begin, std::int64_t end) override;
  void Expect(std::span<const std::int64_t> samples, std::int64_t epoch) override;
  void KeepFactors() override { engine_->KeepFactors(); }
  std::optional<engine::Factors> FactorsOf(std::size_t index) const override {
    return engine_->FactorsOf(index);
  }

 private:
  const data::Datasets datasets_;
  const std::unique_ptr<engine::Engine> engine_;
  DenseSamples samples_;
};

data::Form AutoencoderForm(const v1alpha1::TrainingJobSpec& spec);
Opener BeginAutoencoder(const v1alpha1::TrainingJobSpec& spec);

}  // namespace starling::workload
