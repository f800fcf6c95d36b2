// SPDX-License-Identifier: Apache-2.0
// Classification of dense samples by a network (workload.classification): cross-entropy loss, the
// share of correct answers and, of more than five classes, the share of samples whose class is
// among the five most likely. The network's arithmetic is an engine's (trainer/engine), which is
// libtorch in a shared library beside the program, opened at run time.
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
class Classification final : public Workload {
 public:
  // `datasets` hold classes. `description` goes into model files.
  Classification(data::Datasets datasets, std::unique_ptr<engine::Engine> engine,
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

data::Form ClassificationForm(const v1alpha1::TrainingJobSpec& spec);
Opener BeginClassification(const v1alpha1::TrainingJobSpec& spec);

// The network and its loss, as the job and its data ask for them. INVALID_ARGUMENT, with the path
// of the field, where the model does not fit the data.
absl::StatusOr<engine::EngineConfig> EngineConfigOf(const v1alpha1::TrainingJobSpec& spec,
                                                    const data::Dataset& train);

}  // namespace starling::workload
