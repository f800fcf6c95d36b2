// SPDX-License-Identifier: Apache-2.0
// What spec.numerics makes of a job's numbers: in which a network is computed, and what of that is
// state of training. The optimizer, the exchange and the engine know formats only by what is here.
//
// To add a format to compute in: a row in the table of compute_format.cc; one that weights are kept
// in, or another rule about weights: weight_rule.h. What it does not go with stands in the table of
// api/spec/techniques.cc.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/state_parts.h"
#include "trainer/numerics/loss_scale.h"
#include "trainer/numerics/weight_rule.h"

namespace starling::v1alpha1 {
class Numerics;
}  // namespace starling::v1alpha1

namespace starling::numerics {

// Rounds numbers in place to those that a format has. Thread-safe.
using Round = std::function<void(std::span<float>)>;

// Of what forward and backward compute; empty where they compute in 32 bits.
Round ComputeRounding(const v1alpha1::Numerics& spec);

// Confined to the training loop's thread.
class Numerics {
 public:
  Numerics() = default;  // numbers of 32 bits
  // `tensors` are those of the network that an optimizer moves.
  Numerics(const v1alpha1::Numerics& spec, std::uint64_t seed,
           const std::vector<WeightTensor>& tensors);

  void Register(checkpoint::StateParts& parts);

  // What the loss is multiplied by before backward.
  double loss_scale() const { return loss_scale_ ? loss_scale_->value() : 1; }
  std::int64_t skipped() const { return loss_scale_ ? loss_scale_->skipped() : 0; }
  // Whether a step whose sum is not finite is left out, rather than the end of the job.
  bool CanSkip() const { return loss_scale_ && loss_scale_->CanSkip(); }
  void Skipped() { loss_scale_->Skipped(); }
  void Applied() {
    if (loss_scale_) loss_scale_->Applied();
  }

  // The weights of `tensor` before any step; they are changed to what they may be.
  void Begin(std::size_t tensor, std::span<float> weights);
  // Whether anything is done to weights beside the optimizer.
  bool has_rules() const { return !rules_.empty(); }
  // Around each update of a tensor.
  void BeforeUpdate(const WeightUpdate& update, std::span<float> gradient);
  void AfterUpdate(const WeightUpdate& update, std::span<float> weights);

  // For people, by the names of metrics.
  std::vector<std::pair<std::string, double>> Told() const;

 private:
  std::optional<LossScale> loss_scale_;
  WeightRules rules_;
};

}  // namespace starling::numerics
