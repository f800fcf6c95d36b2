// SPDX-License-Identifier: Apache-2.0
#include "trainer/optimizer/optimizer.h"

#include <cmath>
#include <utility>

#include "common/status/check.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/server_rules.h"

namespace starling::optimizer {
namespace {

// The schema's defaults, for specs that were not resolved.
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-8;

void CheckSizes(std::span<float> parameters, std::span<const float> gradient,
                std::span<const std::span<float>> slots, std::size_t wanted) {
  STARLING_CHECK(slots.size() == wanted, "an optimizer gets all of its slots");
  STARLING_CHECK(gradient.size() == parameters.size(), "a gradient has its parameters' size");
  for (const std::span<float> slot : slots) {
    STARLING_CHECK(slot.size() == parameters.size(), "a slot has its parameters' size");
  }
}

// PyTorch's SGD with dampening 0: decay joins the gradient, the momentum buffer starts as the first
// gradient (as zeros do), and Nesterov looks one step ahead.
class Sgd final : public Optimizer {
 public:
  Sgd(double momentum, double weight_decay, bool nesterov)
      : momentum_(static_cast<float>(momentum)),
        weight_decay_(static_cast<float>(weight_decay)),
        nesterov_(nesterov) {
    if (momentum > 0) slot_names_.emplace_back("momentum");
  }

  const std::vector<std::string>& slot_names() const override { return slot_names_; }

  void Apply(const Update& update, std::span<float> parameters, std::span<const float> gradient,
             std::span<const std::span<float>> slots) const override {
    CheckSizes(parameters, gradient, slots, slot_names_.size());
    const auto rate = static_cast<float>(update.learning_rate);
    float* __restrict p = parameters.data();
    const float* __restrict g = gradient.data();
    const std::size_t count = parameters.size();
    if (slots.empty()) {
      for (std::size_t i = 0; i < count; ++i) p[i] -= rate * (g[i] + weight_decay_ * p[i]);
      return;
    }
    float* __restrict buffer = slots[0].data();
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
  std::vector<std::string> slot_names_;
};

// Adam, and AdamW when decay is decoupled: then it shrinks the parameters by itself and does not
// pass through the means.
class Adam final : public Optimizer {
 public:
  Adam(double beta1, double beta2, double epsilon, double weight_decay, bool decoupled)
      : beta1_(beta1),
        beta2_(beta2),
        epsilon_(static_cast<float>(epsilon)),
        weight_decay_(weight_decay),
        decoupled_(decoupled) {}

  const std::vector<std::string>& slot_names() const override { return slot_names_; }

  void Apply(const Update& update, std::span<float> parameters, std::span<const float> gradient,
             std::span<const std::span<float>> slots) const override {
    CheckSizes(parameters, gradient, slots, slot_names_.size());
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
    float* __restrict mean = slots[0].data();
    float* __restrict variance = slots[1].data();
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
  const std::vector<std::string> slot_names_ = {"mean", "variance"};
};

std::unique_ptr<Optimizer> MakeAdam(const v1alpha1::Adam& spec, bool decoupled) {
  return std::make_unique<Adam>(
      spec.has_beta1() ? spec.beta1() : kBeta1, spec.has_beta2() ? spec.beta2() : kBeta2,
      spec.has_epsilon() ? spec.epsilon() : kEpsilon, spec.weight_decay(), decoupled);
}

Adagrad OptionsOf(const v1alpha1::Adagrad& spec) {
  Adagrad options;
  if (spec.has_epsilon()) options.epsilon = spec.epsilon();
  return options;
}

DelayCompensated OptionsOf(const v1alpha1::DelayCompensated& spec) {
  DelayCompensated options;
  if (spec.has_lambda()) options.lambda = spec.lambda();
  options.adaptive = spec.adaptive();
  return options;
}

Ftrl OptionsOf(const v1alpha1::Ftrl& spec) {
  Ftrl options;
  if (spec.has_beta()) options.beta = spec.beta();
  options.l1 = spec.l1();
  options.l2 = spec.l2();
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const v1alpha1::Optimizer& spec) {
  using v1alpha1::Optimizer;
  switch (spec.kind_case()) {
    case Optimizer::kSgd:
    case Optimizer::KIND_NOT_SET: {
      const v1alpha1::Sgd& sgd = spec.sgd();
      if (sgd.nesterov() && !(sgd.momentum() > 0)) {
        return absl::InvalidArgumentError(
            "spec.optimizer.sgd.nesterov: needs momentum above 0; set "
            "spec.optimizer.sgd.momentum, such as 0.9");
      }
      return std::make_unique<Sgd>(sgd.momentum(), sgd.weight_decay(), sgd.nesterov());
    }
    case Optimizer::kAdam:
      return MakeAdam(spec.adam(), /*decoupled=*/false);
    case Optimizer::kAdamW:
      return MakeAdam(spec.adam_w(), /*decoupled=*/true);
    case Optimizer::kAdagrad:
      return MakeAdagrad(OptionsOf(spec.adagrad()));
    case Optimizer::kAdaRevision:
      return MakeAdaRevision(OptionsOf(spec.ada_revision()));
    case Optimizer::kDelayCompensated:
      return MakeDelayCompensated(OptionsOf(spec.delay_compensated()));
    case Optimizer::kFtrl:
      return MakeFtrl(OptionsOf(spec.ftrl()));
    case Optimizer::kProximalGradient:
      return MakeProximalGradient(spec.proximal_gradient().l1());
  }
  return absl::UnimplementedError(
      "spec.optimizer: this worker is older than the job file and does not know its rule");
}

std::vector<StateSlot> NewState(const Optimizer& optimizer, std::size_t parameters) {
  std::vector<StateSlot> state;
  for (const std::string& name : optimizer.slot_names()) {
    state.push_back({name, std::vector<float>(parameters)});
  }
  return state;
}

void Apply(const Optimizer& optimizer, const Update& update, std::span<float> parameters,
           std::span<const float> gradient, std::vector<StateSlot>& state) {
  std::vector<std::span<float>> slots(state.size());
  for (std::size_t i = 0; i < state.size(); ++i) slots[i] = state[i].values;
  optimizer.Apply(update, parameters, gradient, slots);
}

}  // namespace starling::optimizer
