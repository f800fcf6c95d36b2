// SPDX-License-Identifier: Apache-2.0
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/rule.h"

namespace starling::optimizer {
namespace {

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
    float* __restrict p = parameters.data();
    const float* __restrict g = gradient.data();
    const std::size_t count = parameters.size();
    if (state.empty()) {
      for (std::size_t i = 0; i < count; ++i) p[i] -= rate * (g[i] + weight_decay_ * p[i]);
      return;
    }
    float* __restrict buffer = state[0].data();
    for (std::size_t i = 0; i < count; ++i) {
      const float direction = g[i] + weight_decay_ * p[i];
      buffer[i] = momentum_ * buffer[i] + direction;
      p[i] -= rate * (nesterov_ ? direction + momentum_ * buffer[i] : buffer[i]);
    }
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
