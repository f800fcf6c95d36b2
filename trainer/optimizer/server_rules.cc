// SPDX-License-Identifier: Apache-2.0
#include "trainer/optimizer/server_rules.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/status/check.h"
#include "common/vectorised/vectorised.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/kernels/span_math.h"
#include "trainer/optimizer/rule.h"

namespace starling::optimizer {
namespace {

STARLING_VECTORISED void AdagradLoop(float alpha, float epsilon, const float* __restrict g,
                                     float* __restrict p, float* __restrict squares,
                                     std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    squares[i] += g[i] * g[i];
    const float rate = alpha / (std::sqrt(squares[i]) + epsilon);
    p[i] -= rate * g[i];
  }
}

// The vectors of AdaRevision, and what its reader was given of the last.
struct Revised {
  float* __restrict squares;
  float* __restrict largest;
  float* __restrict sum;
  const float* __restrict seen;
};
STARLING_VECTORISED void AdaRevisionLoop(float alpha, float epsilon, const float* __restrict g,
                                         float* __restrict p, Revised v, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float back = v.sum[i] - v.seen[i];
    const float before = v.largest[i];
    v.squares[i] += g[i] * g[i] + 2 * g[i] * back;
    v.largest[i] = std::max(before, v.squares[i]);
    const float rate = alpha / (std::sqrt(v.largest[i]) + epsilon);
    const float old_rate = before > 0 ? alpha / (std::sqrt(before) + epsilon) : rate;
    p[i] -= rate * g[i] - (old_rate - rate) * back;
    v.sum[i] += g[i];
  }
}

STARLING_VECTORISED void CompensatedLoop(float rate, float lambda, const float* __restrict g,
                                         const float* __restrict read, float* __restrict p,
                                         std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    p[i] -= rate * (g[i] + lambda * g[i] * g[i] * (p[i] - read[i]));
  }
}
struct AdaptiveTerms {
  float rate = 0;
  float lambda = 0;
  float decay = 0;
  float epsilon = 0;
};
STARLING_VECTORISED void AdaptivelyCompensatedLoop(AdaptiveTerms t, const float* __restrict g,
                                                   const float* __restrict read,
                                                   float* __restrict p, float* __restrict mean,
                                                   std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    mean[i] = t.decay * mean[i] + (1 - t.decay) * g[i] * g[i];
    const float strength = t.lambda / std::sqrt(mean[i] + t.epsilon);
    p[i] -= t.rate * (g[i] + strength * g[i] * g[i] * (p[i] - read[i]));
  }
}

struct FtrlTerms {
  float alpha = 0;
  float beta = 0;
  float l1 = 0;
  float l2 = 0;
};
STARLING_VECTORISED void FtrlLoop(FtrlTerms t, const float* __restrict g, float* __restrict p,
                                  float* __restrict z, float* __restrict n, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float root = std::sqrt(n[i] + g[i] * g[i]);
    z[i] += g[i] - (root - std::sqrt(n[i])) / t.alpha * p[i];
    n[i] += g[i] * g[i];
    const float past = std::abs(z[i]) - t.l1;
    const float moved = -std::copysign(past, z[i]) / ((t.beta + std::sqrt(n[i])) / t.alpha + t.l2);
    p[i] = past <= 0 ? 0 : moved;
  }
}

STARLING_VECTORISED void ProximalLoop(float rate, float threshold, const float* __restrict g,
                                      float* __restrict p, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float moved = p[i] - rate * g[i];
    // One of the two is +0.
    p[i] = std::max(moved - threshold, 0.0F) + std::min(moved + threshold, 0.0F);
  }
}

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
    AdagradLoop(static_cast<float>(update.learning_rate), epsilon_, gradient.data(),
                parameters.data(), state[0].data(), parameters.size());
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
    const Revised vectors = {.squares = state[0].data(),
                             .largest = state[1].data(),
                             .sum = state[2].data(),
                             .seen = read.data()};
    AdaRevisionLoop(static_cast<float>(update.learning_rate), epsilon_, gradient.data(),
                    parameters.data(), vectors, parameters.size());
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
    const AdaptiveTerms terms = {.rate = static_cast<float>(update.learning_rate),
                                 .lambda = static_cast<float>(options_.lambda),
                                 .decay = static_cast<float>(options_.decay),
                                 .epsilon = static_cast<float>(options_.epsilon)};
    const float* g = gradient.data();
    float* p = parameters.data();
    if (options_.adaptive) {
      AdaptivelyCompensatedLoop(terms, g, read.data(), p, state[0].data(), parameters.size());
    } else {
      CompensatedLoop(terms.rate, terms.lambda, g, read.data(), p, parameters.size());
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
    const FtrlTerms terms = {.alpha = static_cast<float>(update.learning_rate),
                             .beta = static_cast<float>(options_.beta),
                             .l1 = static_cast<float>(options_.l1),
                             .l2 = static_cast<float>(options_.l2)};
    FtrlLoop(terms, gradient.data(), parameters.data(), state[0].data(), state[1].data(),
             parameters.size());
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
    ProximalLoop(rate, rate * l1_, gradient.data(), parameters.data(), parameters.size());
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
