// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "common/status/check.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/rule.h"

namespace starling::optimizer {
namespace {

// Adam, and AdamW when decay is decoupled: then it shrinks the parameters by itself and does not
// pass through the means.
class Adam final : public Rule {
 public:
  Adam(double beta1, double beta2, double epsilon, double weight_decay, bool decoupled)
      : Rule({"mean", "variance"}),
        beta1_(beta1),
        beta2_(beta2),
        epsilon_(static_cast<float>(epsilon)),
        weight_decay_(weight_decay),
        decoupled_(decoupled) {}

  void Apply(const Update& update, std::span<float> parameters, std::span<const float> gradient,
             StateVectors state) const override {
    CheckSizes(parameters, gradient, state);
    STARLING_CHECK(update.number >= 1, "updates count from 1");
    const auto number = static_cast<double>(update.number);
    const auto step_size =
        static_cast<float>(update.learning_rate / (1 - std::pow(beta1_, number)));
    const auto correction = static_cast<float>(std::sqrt(1 - std::pow(beta2_, number)));
    const auto beta1 = static_cast<float>(beta1_);
    const auto beta2 = static_cast<float>(beta2_);
    const auto rest1 = static_cast<float>(1 - beta1_);
    const auto rest2 = static_cast<float>(1 - beta2_);
    const float decay = decoupled_ ? 0.0F : static_cast<float>(weight_decay_);
    const float shrink =
        decoupled_ ? static_cast<float>(1 - update.learning_rate * weight_decay_) : 1.0F;
    float* __restrict p = parameters.data();
    const float* __restrict g = gradient.data();
    float* __restrict mean = state[0].data();
    float* __restrict variance = state[1].data();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float direction = g[i] + decay * p[i];
      mean[i] = beta1 * mean[i] + rest1 * direction;
      variance[i] = beta2 * variance[i] + rest2 * direction * direction;
      const float denominator = std::sqrt(variance[i]) / correction + epsilon_;
      p[i] = p[i] * shrink - step_size * (mean[i] / denominator);
    }
  }

 private:
  const double beta1_;
  const double beta2_;
  const float epsilon_;
  const double weight_decay_;
  const bool decoupled_;
};

Made Make(const v1alpha1::Adam& spec, bool decoupled) {
  return std::make_unique<Adam>(Setting(spec, "beta1"), Setting(spec, "beta2"),
                                Setting(spec, "epsilon"), Setting(spec, "weight_decay"), decoupled);
}

}  // namespace

Made AdamOf(const v1alpha1::Optimizer& spec) { return Make(spec.adam(), /*decoupled=*/false); }
Made AdamWOf(const v1alpha1::Optimizer& spec) { return Make(spec.adam_w(), /*decoupled=*/true); }

}  // namespace starling::optimizer
