// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "common/status/check.h"
#include "common/vectorised/vectorised.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/rule.h"

namespace starling::optimizer {
namespace {

// Numbers of one update.
struct AdamTerms {
  float beta1 = 0;
  float beta2 = 0;
  float rest1 = 0;  // 1 - beta1
  float rest2 = 0;
  float step_size = 0;
  float correction = 0;
  float epsilon = 0;
  float decay = 0;
  float shrink = 0;
};

STARLING_VECTORISED void AdamLoop(AdamTerms t, const float* __restrict g, float* __restrict p,
                                  float* __restrict mean, float* __restrict variance,
                                  std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float direction = g[i] + t.decay * p[i];
    mean[i] = t.beta1 * mean[i] + t.rest1 * direction;
    variance[i] = t.beta2 * variance[i] + t.rest2 * direction * direction;
    const float denominator = std::sqrt(variance[i]) / t.correction + t.epsilon;
    p[i] = p[i] * t.shrink - t.step_size * (mean[i] / denominator);
  }
}

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
    const double shrink = decoupled_ ? 1 - update.learning_rate * weight_decay_ : 1;
    const AdamTerms terms = {
        .beta1 = static_cast<float>(beta1_),
        .beta2 = static_cast<float>(beta2_),
        .rest1 = static_cast<float>(1 - beta1_),
        .rest2 = static_cast<float>(1 - beta2_),
        .step_size = static_cast<float>(update.learning_rate / (1 - std::pow(beta1_, number))),
        .correction = static_cast<float>(std::sqrt(1 - std::pow(beta2_, number))),
        .epsilon = epsilon_,
        .decay = decoupled_ ? 0.0F : static_cast<float>(weight_decay_),
        .shrink = static_cast<float>(shrink),
    };
    AdamLoop(terms, gradient.data(), parameters.data(), state[0].data(), state[1].data(),
             parameters.size());
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
