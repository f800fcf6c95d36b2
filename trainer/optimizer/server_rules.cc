// SPDX-License-Identifier: Apache-2.0
#include "trainer/optimizer/server_rules.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/status/check.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/kernels/span_math.h"
#include "trainer/optimizer/rule.h"

namespace starling::optimizer {
namespace {

class AddRule final : public Rule {
 public:
  AddRule() : Rule({}) {}
  void Apply(const Update& /*update*/, std::span<float> parameters, std::span<const float> gradient,
             StateVectors state) const override {
    CheckSizes(parameters, gradient, state);
    kernels::Add(gradient, parameters);
  }
};

class AdagradRule final : public Rule {
 public:
  explicit AdagradRule(const Adagrad& options)
      : Rule({"squares"}), epsilon_(static_cast<float>(options.epsilon)) {}
  void Apply(const Update& update, std::span<float> parameters, std::span<const float> gradient,
             StateVectors state) const override {
    CheckSizes(parameters, gradient, state);
    const auto alpha = static_cast<float>(update.learning_rate);
    float* __restrict p = parameters.data();
    const float* __restrict g = gradient.data();
    float* __restrict squares = state[0].data();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      squares[i] += g[i] * g[i];
      const float rate = alpha / (std::sqrt(squares[i]) + epsilon_);
      p[i] -= rate * g[i];
    }
  }

 private:
  const float epsilon_;
};

class AdaRevisionRule final : public Rule {
 public:
  explicit AdaRevisionRule(const Adagrad& options)
      : Rule({"squares", "largest", "gradients"}), epsilon_(static_cast<float>(options.epsilon)) {}

  int remembered() const override { return 2; }
  void Apply(const Update& update, std::span<float> parameters, std::span<const float> gradient,
             StateVectors state) const override {
    const std::vector<float> now(state[2].begin(), state[2].end());
    ApplyDelayed(update, parameters, gradient, state, now);
  }
  void ApplyDelayed(const Update& update, std::span<float> parameters,
                    std::span<const float> gradient, StateVectors state,
                    std::span<const float> read) const override {
    CheckSizes(parameters, gradient, state);
    STARLING_CHECK(read.size() == parameters.size(), "what was read has the parameters' size");
    const auto alpha = static_cast<float>(update.learning_rate);
    float* __restrict p = parameters.data();
    const float* __restrict g = gradient.data();
    const float* __restrict seen = read.data();
    float* __restrict squares = state[0].data();
    float* __restrict largest = state[1].data();
    float* __restrict sum = state[2].data();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float back = sum[i] - seen[i];
      const float before = largest[i];
      squares[i] += g[i] * g[i] + 2 * g[i] * back;
      largest[i] = std::max(before, squares[i]);
      const float rate = alpha / (std::sqrt(largest[i]) + epsilon_);
      const float old_rate = before > 0 ? alpha / (std::sqrt(before) + epsilon_) : rate;
      p[i] -= rate * g[i] - (old_rate - rate) * back;
      sum[i] += g[i];
    }
  }

 private:
  const float epsilon_;
};

class DelayCompensatedRule final : public Rule {
 public:
  explicit DelayCompensatedRule(const DelayCompensated& options)
      : Rule(options.adaptive ? std::vector<std::string>{"meanSquare"}
                              : std::vector<std::string>{}),
        options_(options) {}

  int remembered() const override { return kParameters; }
  void Apply(const Update& update, std::span<float> parameters, std::span<const float> gradient,
             StateVectors state) const override {
    const std::vector<float> now(parameters.begin(), parameters.end());
    ApplyDelayed(update, parameters, gradient, state, now);
  }
  void ApplyDelayed(const Update& update, std::span<float> parameters,
                    std::span<const float> gradient, StateVectors state,
                    std::span<const float> read) const override {
    CheckSizes(parameters, gradient, state);
    STARLING_CHECK(read.size() == parameters.size(), "what was read has the parameters' size");
    const auto rate = static_cast<float>(update.learning_rate);
    const auto lambda = static_cast<float>(options_.lambda);
    const auto decay = static_cast<float>(options_.decay);
    const auto epsilon = static_cast<float>(options_.epsilon);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float g = gradient[i];
      float strength = lambda;
      if (options_.adaptive) {
        float& mean = state[0][i];
        mean = decay * mean + (1 - decay) * g * g;
        strength = lambda / std::sqrt(mean + epsilon);
      }
      parameters[i] -= rate * (g + strength * g * g * (parameters[i] - read[i]));
    }
  }

 private:
  const DelayCompensated options_;
};

class FtrlRule final : public Rule {
 public:
  explicit FtrlRule(const Ftrl& options) : Rule({"z", "n"}), options_(options) {}
  void Apply(const Update& update, std::span<float> parameters, std::span<const float> gradient,
             StateVectors state) const override {
    CheckSizes(parameters, gradient, state);
    const auto alpha = static_cast<float>(update.learning_rate);
    const auto beta = static_cast<float>(options_.beta);
    const auto l1 = static_cast<float>(options_.l1);
    const auto l2 = static_cast<float>(options_.l2);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float g = gradient[i];
      float& z = state[0][i];
      float& n = state[1][i];
      const float root = std::sqrt(n + g * g);
      z += g - (root - std::sqrt(n)) / alpha * parameters[i];
      n += g * g;
      const float past = std::abs(z) - l1;
      parameters[i] =
          past <= 0 ? 0 : -std::copysign(past, z) / ((beta + std::sqrt(n)) / alpha + l2);
    }
  }
  // Parameters follow from z: it becomes what gives these.
  void Begin(const Update& first, std::span<const float> parameters,
             StateVectors state) const override {
    const auto alpha = static_cast<float>(first.learning_rate);
    const auto beta = static_cast<float>(options_.beta);
    const auto l1 = static_cast<float>(options_.l1);
    const auto l2 = static_cast<float>(options_.l2);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float p = parameters[i];
      state[0][i] = p == 0 ? 0 : -(p * (beta / alpha + l2) + std::copysign(l1, p));
      state[1][i] = 0;
    }
  }

 private:
  const Ftrl options_;
};

class ProximalGradientRule final : public Rule {
 public:
  explicit ProximalGradientRule(double l1) : Rule({}), l1_(static_cast<float>(l1)) {}
  void Apply(const Update& update, std::span<float> parameters, std::span<const float> gradient,
             StateVectors state) const override {
    CheckSizes(parameters, gradient, state);
    const auto rate = static_cast<float>(update.learning_rate);
    const float threshold = rate * l1_;
    float* __restrict p = parameters.data();
    const float* __restrict g = gradient.data();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float moved = p[i] - rate * g[i];
      // One of the two is +0.
      p[i] = std::max(moved - threshold, 0.0F) + std::min(moved + threshold, 0.0F);
    }
  }

 private:
  const float l1_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdd() { return std::make_unique<AddRule>(); }
std::unique_ptr<Optimizer> MakeAdagrad(const Adagrad& options) {
  return std::make_unique<AdagradRule>(options);
}
std::unique_ptr<Optimizer> MakeAdaRevision(const Adagrad& options) {
  return std::make_unique<AdaRevisionRule>(options);
}
std::unique_ptr<Optimizer> MakeDelayCompensated(const DelayCompensated& options) {
  return std::make_unique<DelayCompensatedRule>(options);
}
std::unique_ptr<Optimizer> MakeFtrl(const Ftrl& options) {
  return std::make_unique<FtrlRule>(options);
}
std::unique_ptr<Optimizer> MakeProximalGradient(double l1) {
  return std::make_unique<ProximalGradientRule>(l1);
}

Made AdagradOf(const v1alpha1::Optimizer& spec) {
  return MakeAdagrad(Adagrad{.epsilon = Setting(spec.adagrad(), "epsilon")});
}
Made AdaRevisionOf(const v1alpha1::Optimizer& spec) {
  return MakeAdaRevision(Adagrad{.epsilon = Setting(spec.ada_revision(), "epsilon")});
}
Made DelayCompensatedOf(const v1alpha1::Optimizer& spec) {
  const v1alpha1::DelayCompensated& rule = spec.delay_compensated();
  return MakeDelayCompensated(
      DelayCompensated{.lambda = Setting(rule, "lambda"), .adaptive = rule.adaptive()});
}
Made FtrlOf(const v1alpha1::Optimizer& spec) {
  const v1alpha1::Ftrl& rule = spec.ftrl();
  return MakeFtrl(
      Ftrl{.beta = Setting(rule, "beta"), .l1 = Setting(rule, "l1"), .l2 = Setting(rule, "l2")});
}
Made ProximalGradientOf(const v1alpha1::Optimizer& spec) {
  return MakeProximalGradient(Setting(spec.proximal_gradient(), "l1"));
}

// As rounding is monotonous, rate * |gradient| is not above rate * l1 either.
bool StaysZero(float weight, float gradient, double l1) {
  return weight == 0 && std::abs(gradient) <= static_cast<float>(l1);
}

}  // namespace starling::optimizer
