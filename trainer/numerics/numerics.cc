// SPDX-License-Identifier: Apache-2.0
#include "trainer/numerics/numerics.h"

#include "starling/v1alpha1/training_job.pb.h"

namespace starling::numerics {

Numerics::Numerics(const v1alpha1::Numerics& spec, std::uint64_t seed,
                   const std::vector<WeightTensor>& tensors)
    : rules_(MakeWeightRules(spec, seed, tensors)) {
  if (!spec.has_mixed_precision()) return;
  const v1alpha1::MixedPrecision& mixed = spec.mixed_precision();
  loss_scale_.emplace(mixed.loss_scale(), mixed.grow_every());
}

void Numerics::Register(checkpoint::StateParts& parts) {
  if (loss_scale_) loss_scale_->Register(parts);
  for (const auto& rule : rules_) rule->Register(parts);
}

void Numerics::Begin(std::size_t tensor, std::span<float> weights) {
  for (const auto& rule : rules_) rule->Begin(tensor, weights);
  AfterUpdate({.tensor = tensor}, weights);
}

void Numerics::BeforeUpdate(const WeightUpdate& update, std::span<float> gradient) {
  for (const auto& rule : rules_) rule->BeforeUpdate(update, gradient);
}

void Numerics::AfterUpdate(const WeightUpdate& update, std::span<float> weights) {
  for (const auto& rule : rules_) rule->AfterUpdate(update, weights);
}

std::vector<std::pair<std::string, double>> Numerics::Told() const {
  std::vector<std::pair<std::string, double>> told;
  if (loss_scale_) {
    told = {{"numerics/lossScale", loss_scale_->value()},
            {"numerics/skippedSteps", static_cast<double>(loss_scale_->skipped())}};
  }
  for (const auto& rule : rules_) {
    const auto more = rule->Told();
    told.insert(told.end(), more.begin(), more.end());
  }
  return told;
}

}  // namespace starling::numerics
