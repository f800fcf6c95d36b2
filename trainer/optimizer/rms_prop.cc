// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/rule.h"

namespace starling::optimizer {
namespace {

// RMSProp (Tieleman and Hinton 2012) with PyTorch's meaning of every term: the learning rate does
// not enter the momentum, and epsilon is added to the root.
// meanSquare = decay * meanSquare + (1 - decay) * g^2;
// momentum = m * momentum + g / (sqrt(meanSquare) + epsilon); w -= rate * momentum.
class RmsProp final : public Rule {
 public:
  explicit RmsProp(const v1alpha1::RmsProp& spec)
      : Rule(Setting(spec, "momentum") > 0 ? std::vector<std::string>{"meanSquare", "momentum"}
                                           : std::vector<std::string>{"meanSquare"}),
        decay_(static_cast<float>(Setting(spec, "decay"))),
        rest_(static_cast<float>(1 - Setting(spec, "decay"))),
        epsilon_(static_cast<float>(Setting(spec, "epsilon"))),
        momentum_(static_cast<float>(Setting(spec, "momentum"))),
        weight_decay_(static_cast<float>(Setting(spec, "weight_decay"))) {}

  void Apply(const Update& update, std::span<float> parameters, std::span<const float> gradient,
             StateVectors state) const override {
    CheckSizes(parameters, gradient, state);
    const auto rate = static_cast<float>(update.learning_rate);
    float* __restrict p = parameters.data();
    const float* __restrict g = gradient.data();
    float* __restrict mean = state[0].data();
    float* __restrict momentum = state.size() > 1 ? state[1].data() : nullptr;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float direction = g[i] + weight_decay_ * p[i];
      mean[i] = decay_ * mean[i] + rest_ * direction * direction;
      float step = direction / (std::sqrt(mean[i]) + epsilon_);
      if (momentum != nullptr) step = momentum[i] = momentum_ * momentum[i] + step;
      p[i] -= rate * step;
    }
  }

 private:
  const float decay_;
  const float rest_;
  const float epsilon_;
  const float momentum_;
  const float weight_decay_;
};

}  // namespace

Made RmsPropOf(const v1alpha1::Optimizer& spec) {
  return std::make_unique<RmsProp>(spec.rms_prop());
}

}  // namespace starling::optimizer
