// SPDX-License-Identifier: Apache-2.0
// Weights in fixed point (Gupta et al. 2015): multiples of 2^-fractionBits, in a range that does
// not change. A step smaller than half of that is lost by rounding to nearest; by draws it counts
// as often as it is long.
#include <cmath>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/numerics/draws.h"
#include "trainer/numerics/weight_rule.h"

namespace starling::numerics {
namespace {

class FixedPointRule final : public WeightRule {
 public:
  FixedPointRule(const v1alpha1::FixedPoint& spec, std::uint64_t seed,
                 const std::vector<WeightTensor>& tensors)
      : nearest_(spec.rounding() == v1alpha1::ROUNDING_NEAREST), seed_(seed), tensors_(tensors) {
    const float end = std::ldexp(1.0F, static_cast<int>(spec.integer_bits()) - 1);
    grid_.step = std::ldexp(1.0F, -static_cast<int>(spec.fraction_bits()));
    grid_.lowest = -end;
    grid_.highest = end - grid_.step;
  }

  void AfterUpdate(const WeightUpdate& update, std::span<float> weights) override {
    if (nearest_) return kernels::RoundToGrid(grid_, weights);
    RoundByDraws(seed_, update.step, tensors_[update.tensor].offset, grid_, weights);
  }

 private:
  const bool nearest_;
  const std::uint64_t seed_;
  const std::vector<WeightTensor> tensors_;
  kernels::FixedPointGrid grid_;
};

}  // namespace

std::unique_ptr<WeightRule> FixedPointOf(const v1alpha1::Numerics& spec, std::uint64_t seed,
                                         const std::vector<WeightTensor>& tensors) {
  return std::make_unique<FixedPointRule>(spec.fixed_point(), seed, tensors);
}

}  // namespace starling::numerics
