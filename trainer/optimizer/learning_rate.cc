// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/rule.h"

namespace starling::optimizer {
namespace {

constexpr double kStairFactor = 0.1;  // the schema's default

}  // namespace

double LearningRate(const v1alpha1::Optimizer& spec, std::int64_t step) {
  return LearningRate(spec.schedule(), Setting(SettingsOf(spec), "learning_rate"), step);
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
