// SPDX-License-Identifier: Apache-2.0
// What is done to the weights of a network beside the optimizer: the formats that they are kept in,
// and the weights that stay 0.
//
// A rule sees whole tensors, one after another, around each update, with equal bits at every
// worker; what it remembers is state of training, and what it draws depends on seed, step and place
// alone. So workers stay equal, and a job gives the same model however many there are. To add one:
// its message in spec.numerics, a source file with a WeightRule, a line in the table of
// weight_rules.cc, and a line in weight_rules_test.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/state_parts.h"

namespace starling::v1alpha1 {
class Numerics;
}  // namespace starling::v1alpha1

namespace starling::numerics {

// Of a network that an optimizer moves; not running means.
struct WeightTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // in the flat parameters
  std::int64_t size = 0;
};

// One update of a tensor.
struct WeightUpdate {
  std::size_t tensor = 0;    // its place among those that the rule was made for
  std::int64_t step = 0;     // that it belongs to, from 1; 0: the first values
  std::int64_t samples = 0;  // of the step
};

// Confined to the training loop's thread.
class WeightRule {
 public:
  virtual ~WeightRule() = default;

  // What it remembers. Once, before anything else.
  virtual void Register(checkpoint::StateParts& /*parts*/) {}
  // The first values, which are the same at all workers; AfterUpdate follows, with step 0.
  virtual void Begin(std::size_t /*tensor*/, std::span<const float> /*weights*/) {}
  // The mean gradient, before the optimizer sees it.
  virtual void BeforeUpdate(const WeightUpdate& /*update*/, std::span<float> /*gradient*/) {}
  // The weights, as the optimizer has left them.
  virtual void AfterUpdate(const WeightUpdate& update, std::span<float> weights) = 0;
  // For people, by the names of metrics.
  virtual std::vector<std::pair<std::string, double>> Told() const { return {}; }
};

// In the order in which they are applied after an update.
using WeightRules = std::vector<std::unique_ptr<WeightRule>>;
WeightRules MakeWeightRules(const v1alpha1::Numerics& spec, std::uint64_t seed,
                            const std::vector<WeightTensor>& tensors);

// The rules of the table, each from its own member of the spec.
std::unique_ptr<WeightRule> FixedPointOf(const v1alpha1::Numerics& spec, std::uint64_t seed,
                                         const std::vector<WeightTensor>& tensors);
std::unique_ptr<WeightRule> DynamicFixedPointOf(const v1alpha1::Numerics& spec, std::uint64_t seed,
                                                const std::vector<WeightTensor>& tensors);
std::unique_ptr<WeightRule> SparsityOf(const v1alpha1::Numerics& spec, std::uint64_t seed,
                                       const std::vector<WeightTensor>& tensors);

}  // namespace starling::numerics
