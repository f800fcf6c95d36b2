// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "common/vectorised/vectorised.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/rule.h"

namespace starling::optimizer {
namespace {

// Numbers of one update.
struct RmsPropTerms {
  float rate = 0;
  float decay = 0;  // of the mean
  float rest = 0;   // 1 - decay
  float epsilon = 0;
  float momentum = 0;
  float weight_decay = 0;
};

STARLING_VECTORISED void RmsPropPlainLoop(RmsPropTerms t, const float* __restrict g,
                                          float* __restrict p, float* __restrict mean,
                                          std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float direction = g[i] + t.weight_decay * p[i];
    mean[i] = t.decay * mean[i] + t.rest * direction * direction;
    p[i] -= t.rate * (direction / (std::sqrt(mean[i]) + t.epsilon));
  }
}
STARLING_VECTORISED void RmsPropMomentumLoop(RmsPropTerms t, const float* __restrict g,
                                             float* __restrict p, float* __restrict mean,
                                             float* __restrict momentum, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float direction = g[i] + t.weight_decay * p[i];
    mean[i] = t.decay * mean[i] + t.rest * direction * direction;
    momentum[i] = t.momentum * momentum[i] + direction / (std::sqrt(mean[i]) + t.epsilon);
    p[i] -= t.rate * momentum[i];
  }
}

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
    const RmsPropTerms terms = {.rate = static_cast<float>(update.learning_rate),
                                .decay = decay_,
                                .rest = rest_,
                                .epsilon = epsilon_,
                                .momentum = momentum_,
                                .weight_decay = weight_decay_};
    const float* g = gradient.data();
    float* p = parameters.data();
    float* mean = state[0].data();
    if (state.size() == 1) {
      RmsPropPlainLoop(terms, g, p, mean, parameters.size());
    } else {
      RmsPropMomentumLoop(terms, g, p, mean, state[1].data(), parameters.size());
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
