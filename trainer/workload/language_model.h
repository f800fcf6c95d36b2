// SPDX-License-Identifier: Apache-2.0
// Prediction of a text's next symbol by a network (workload.languageModel): at each place of a
// sample, by that place's symbol and those before it. The loss is cross-entropy, of a sample the
// mean over its places; perplexity is e to its power.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/load_datasets.h"
#include "trainer/engine/engine_library.h"
#include "trainer/workload/network_engine.h"
#include "trainer/workload/workloads.h"

namespace starling::workload {

// Confined to one thread.
class LanguageModel final : public Workload {
 public:
  // `datasets` hold texts, and `engine` predicts at each of their samples' places. `description`
  // goes into model files.
  LanguageModel(const data::Datasets& datasets, std::unique_ptr<engine::Engine> engine,
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
  void Gather(const data::Text& text, std::span<const std::int64_t> samples);

  const std::shared_ptr<const data::Text> train_;
  const std::shared_ptr<const data::Text> validation_;  // may be null
  const std::unique_ptr<engine::Engine> engine_;
  std::vector<float> given_;
  std::vector<std::int64_t> wanted_;
};

data::Form LanguageModelForm(const v1alpha1::TrainingJobSpec& spec);
Opener BeginLanguageModel(const v1alpha1::TrainingJobSpec& spec);

}  // namespace starling::workload
