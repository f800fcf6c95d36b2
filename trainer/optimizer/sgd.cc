// SPDX-License-Identifier: Apache-2.0
#include "common/vectorised/vectorised.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/rule.h"

namespace starling::optimizer {
namespace {

STARLING_VECTORISED void SgdPlainLoop(float rate, float decay, const float* __restrict g,
                                      float* __restrict p, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) p[i] -= rate * (g[i] + decay * p[i]);
}
STARLING_VECTORISED void SgdMomentumLoop(float rate, float decay, float momentum,
                                         const float* __restrict g, float* __restrict p,
                                         float* __restrict buffer, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    buffer[i] = momentum * buffer[i] + (g[i] + decay * p[i]);
    p[i] -= rate * buffer[i];
  }
}
STARLING_VECTORISED void SgdNesterovLoop(float rate, float decay, float momentum,
                                         const float* __restrict g, float* __restrict p,
                                         float* __restrict buffer, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float direction = g[i] + decay * p[i];
    buffer[i] = momentum * buffer[i] + direction;
    p[i] -= rate * (direction + momentum * buffer[i]);
  }
}

// PyTorch's SGD with dampening 0: decay joins the gradient, the momentum buffer starts as the first
// gradient (as zeros do), and Nesterov looks one step ahead.
class Sgd final : public Rule {
 public:
  Sgd(double momentum, double weight_decay, bool nesterov)
      : Rule(momentum > 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{}),
        momentum_(static_cast<float>(momentum)),
        weight_decay_(static_cast<float>(weight_decay)),
        nesterov_(nesterov) {}

  void Apply(const Update& update, std::span<float> parameters, std::span<const float> gradient,
             StateVectors state) const override {
    CheckSizes(parameters, gradient, state);
    const auto rate = static_cast<float>(update.learning_rate);
    const float* g = gradient.data();
    float* p = parameters.data();
    if (state.empty()) {
      SgdPlainLoop(rate, weight_decay_, g, p, parameters.size());
      return;
    }
    const auto loop = nesterov_ ? SgdNesterovLoop : SgdMomentumLoop;
    loop(rate, weight_decay_, momentum_, g, p, state[0].data(), parameters.size());
  }

 private:
  const float momentum_;
  const float weight_decay_;
  const bool nesterov_;
};

}  // namespace

Made SgdOf(const v1alpha1::Optimizer& spec) {
  const v1alpha1::Sgd& sgd = spec.sgd();
  const double momentum = Setting(sgd, "momentum");
  if (sgd.nesterov() && !(momentum > 0)) {
    return absl::InvalidArgumentError(
        "spec.optimizer.sgd.nesterov: needs momentum above 0; set "
        "spec.optimizer.sgd.momentum, such as 0.9");
  }
  return std::make_unique<Sgd>(momentum, Setting(sgd, "weight_decay"), sgd.nesterov());
}

}  // namespace starling::optimizer
