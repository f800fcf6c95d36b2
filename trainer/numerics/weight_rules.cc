// SPDX-License-Identifier: Apache-2.0
// The table of weight rules. Masks come last: what is 0 stays 0 whatever it was rounded to.
#include <iterator>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/numerics/weight_rule.h"

namespace starling::numerics {
namespace {

struct RuleKind {
  bool (*wanted)(const v1alpha1::Numerics& spec);
  std::unique_ptr<WeightRule> (*make)(const v1alpha1::Numerics& spec, std::uint64_t seed,
                                      const std::vector<WeightTensor>& tensors);
};

constexpr RuleKind kRuleKinds[] = {
    {[](const v1alpha1::Numerics& spec) { return spec.has_fixed_point(); }, FixedPointOf},
    {[](const v1alpha1::Numerics& spec) { return spec.has_dynamic_fixed_point(); },
     DynamicFixedPointOf},
    {[](const v1alpha1::Numerics& spec) { return spec.has_sparsity(); }, SparsityOf},
};

}  // namespace

WeightRules MakeWeightRules(const v1alpha1::Numerics& spec, std::uint64_t seed,
                            const std::vector<WeightTensor>& tensors) {
  WeightRules rules;
  for (const RuleKind& kind : kRuleKinds) {
    if (kind.wanted(spec)) rules.push_back(kind.make(spec, seed, tensors));
  }
  return rules;
}

}  // namespace starling::numerics
