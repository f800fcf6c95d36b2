// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "common/vectorised/vectorised.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/kernels/span_math.h"
#include "trainer/optimizer/rule.h"

namespace starling::optimizer {
namespace {

STARLING_VECTORISED void LarsLoop(float rate, float decay, float momentum,
                                  const float* __restrict g, float* __restrict p,
                                  float* __restrict buffer, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    buffer[i] = momentum * buffer[i] + rate * (g[i] + decay * p[i]);
    p[i] -= buffer[i];
  }
}

// LARS (You, Gitman and Ginsburg 2017), with what it is to hold for a matrix or kernel:
// ratio = trust * |w| / (|g| + decay * |w|), 1 where one of the norms is 0;
// momentum = m * momentum + rate * ratio * (g + decay * w); w -= momentum.
// Biases and scales have a ratio of 1 and no decay. Norms are sums in double, in a fixed order.
class Lars final : public Rule {
 public:
  explicit Lars(const v1alpha1::Lars& spec)
      : Rule({"momentum"}),
        momentum_(static_cast<float>(Setting(spec, "momentum"))),
        weight_decay_(static_cast<float>(Setting(spec, "weight_decay"))),
        trust_(Setting(spec, "trust")) {}

  void Apply(const Update& update, std::span<float> parameters, std::span<const float> gradient,
             StateVectors state) const override {
    CheckSizes(parameters, gradient, state);
    const double ratio = update.whole_matrix ? RatioOf(parameters, gradient) : 1;
    const auto rate = static_cast<float>(update.learning_rate * ratio);
    const float decay = update.whole_matrix ? weight_decay_ : 0;
    LarsLoop(rate, decay, momentum_, gradient.data(), parameters.data(), state[0].data(),
             parameters.size());
  }
  bool elementwise() const override { return false; }

 private:
  double RatioOf(std::span<const float> parameters, std::span<const float> gradient) const {
    const double weights = std::sqrt(kernels::SumOfSquares(parameters));
    const double slope = std::sqrt(kernels::SumOfSquares(gradient));
    if (weights == 0 || slope == 0) return 1;
    return trust_ * weights / (slope + double{weight_decay_} * weights);
  }

  const float momentum_;
  const float weight_decay_;
  const double trust_;
};

}  // namespace

Made LarsOf(const v1alpha1::Optimizer& spec) { return std::make_unique<Lars>(spec.lars()); }

}  // namespace starling::optimizer
