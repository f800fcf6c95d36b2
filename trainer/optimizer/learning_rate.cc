// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/optimizer.h"

namespace starling::optimizer {
namespace {

constexpr double kSgdRate = 0.05;  // the schema's defaults
constexpr double kAdamRate = 0.001;
constexpr double kFtrlRate = 0.1;
constexpr double kStairFactor = 0.1;

template <typename Rule>
double RateOf(const Rule& rule, double otherwise) {
  return rule.has_learning_rate() ? rule.learning_rate() : otherwise;
}

double BaseRate(const v1alpha1::Optimizer& spec) {
  using v1alpha1::Optimizer;
  switch (spec.kind_case()) {
    case Optimizer::kSgd:
    case Optimizer::KIND_NOT_SET:
      break;
    case Optimizer::kAdam:
      return RateOf(spec.adam(), kAdamRate);
    case Optimizer::kAdamW:
      return RateOf(spec.adam_w(), kAdamRate);
    case Optimizer::kAdagrad:
      return RateOf(spec.adagrad(), kSgdRate);
    case Optimizer::kAdaRevision:
      return RateOf(spec.ada_revision(), kSgdRate);
    case Optimizer::kDelayCompensated:
      return RateOf(spec.delay_compensated(), kSgdRate);
    case Optimizer::kFtrl:
      return RateOf(spec.ftrl(), kFtrlRate);
    case Optimizer::kProximalGradient:
      return RateOf(spec.proximal_gradient(), kSgdRate);
  }
  return RateOf(spec.sgd(), kSgdRate);
}

}  // namespace

double LearningRate(const v1alpha1::Optimizer& spec, std::int64_t step) {
  return LearningRate(spec.schedule(), BaseRate(spec), step);
}

double LearningRate(const v1alpha1::LearningRateSchedule& schedule, double rate,
                    std::int64_t step) {
  const std::int64_t warmup = schedule.warmup_steps();
  if (step <= warmup) return rate * static_cast<double>(step) / static_cast<double>(warmup);
  const std::int64_t past = step - warmup - 1;  // steps since the warm-up, this one not counted
  if (schedule.has_step()) {
    const std::int64_t every = std::max<std::int64_t>(1, schedule.step().every());
    const double factor = schedule.step().has_factor() ? schedule.step().factor() : kStairFactor;
    const std::int64_t falls = past / every;
    return rate * std::pow(factor, static_cast<double>(falls));
  }
  if (schedule.has_cosine()) {
    const auto steps = static_cast<double>(std::max<std::int64_t>(1, schedule.cosine().steps()));
    const double share = std::min(1.0, static_cast<double>(past) / steps);
    const double lowest = schedule.cosine().minimum();
    return rate * (lowest + (1 - lowest) * 0.5 * (1 + std::cos(std::numbers::pi * share)));
  }
  return rate;
}

}  // namespace starling::optimizer
