// SPDX-License-Identifier: Apache-2.0
#include "trainer/optimizer/server_rules.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::optimizer {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using Floats = std::vector<float>;

Floats Gradient(int step, std::size_t count) {
  Floats gradient(count);
  for (std::size_t i = 0; i < count; ++i) {
    gradient[i] = static_cast<float>(
        std::sin(static_cast<double>(step) * 1.7 + static_cast<double>(i) * 0.3));
  }
  return gradient;
}

std::vector<std::span<float>> SpansOf(std::vector<StateVector>& state) {
  std::vector<std::span<float>> spans;
  spans.reserve(state.size());
  for (StateVector& vector : state) spans.emplace_back(vector.values);
  return spans;
}

TEST(Add, IsThePushedChange) {
  Floats parameters = {1, 2};
  std::vector<StateVector> none;
  Apply(*MakeAdd(), {0.1, 1}, parameters, Floats{3, -1}, none);
  EXPECT_THAT(parameters, ElementsAre(4, 1));
}

TEST(Adagrad, AccumulatorsEqualARecomputationFromTheLog) {
  const auto rule = MakeAdagrad({});
  Floats parameters(5);
  auto state = NewState(*rule, 5);
  std::vector<double> squares(5), reference(5);
  for (int step = 1; step <= 30; ++step) {
    const Floats gradient = Gradient(step, 5);
    Apply(*rule, {0.5, step}, parameters, gradient, state);
    for (std::size_t i = 0; i < 5; ++i) {
      squares[i] += double{gradient[i]} * double{gradient[i]};
      reference[i] -= 0.5 / std::sqrt(squares[i]) * double{gradient[i]};
    }
  }
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(state[0].values[i], squares[i], 1e-4);
    EXPECT_NEAR(parameters[i], reference[i], 1e-4);
  }
}

TEST(AdaRevision, WithoutDelayIsAdagradBitForBit) {
  const auto adagrad = MakeAdagrad({});
  const auto revision = MakeAdaRevision({});
  Floats a(7), b(7);
  auto a_state = NewState(*adagrad, 7);
  auto b_state = NewState(*revision, 7);
  for (int step = 1; step <= 50; ++step) {
    Apply(*adagrad, {0.3, step}, a, Gradient(step, 7), a_state);
    Apply(*revision, {0.3, step}, b, Gradient(step, 7), b_state);
  }
  EXPECT_EQ(a, b);
}

// The loss 0.5 * (w - 1)^2 after 200 gradients, each of parameters read `delay` updates before.
double LossUnderDelay(const Optimizer& rule, double rate, std::size_t delay) {
  Floats w = {-3};
  auto state = NewState(rule, 1);
  const auto spans = SpansOf(state);
  std::deque<std::pair<float, float>> reads;  // parameters, and what the rule remembers
  for (int step = 1; step <= 200; ++step) {
    const int of = rule.remembered();
    reads.emplace_back(w[0], of >= 0 ? state[static_cast<std::size_t>(of)].values[0] : w[0]);
    if (reads.size() <= delay) continue;
    const auto [parameters, remembered] = reads.front();
    reads.pop_front();
    rule.ApplyDelayed({rate, step}, w, Floats{parameters - 1}, spans, Floats{remembered});
  }
  return 0.5 * std::pow(double{w[0]} - 1, 2);
}

TEST(AdaRevision, BeatsAdagradWhereGradientsAreDelayed) {
  EXPECT_LT(LossUnderDelay(*MakeAdaRevision({}), 2, 10), LossUnderDelay(*MakeAdagrad({}), 2, 10));
}

TEST(DelayCompensated, AddsTheFirstOrderTermOfTheChangeSinceTheRead) {
  const auto rule = MakeDelayCompensated({0.5, false, 0, 0});
  Floats parameters = {2, -1};
  rule->ApplyDelayed({0.1, 1}, parameters, Floats{3, 2}, {}, Floats{1.5F, -1});
  EXPECT_THAT(parameters, ElementsAre(FloatNear(2 - 0.1F * (3 + 0.5F * 9 * 0.5F), 1e-6F),
                                      FloatNear(-1 - 0.1F * 2, 1e-6F)));
}

TEST(DelayCompensated, WithoutStalenessIsPlainDescent) {
  for (const bool adaptive : {false, true}) {
    const auto rule = MakeDelayCompensated({2, adaptive, 0.95, 1e-7});
    Floats parameters = {1, 2, 3};
    auto state = NewState(*rule, 3);
    Apply(*rule, {0.25, 1}, parameters, Floats{4, -4, 0}, state);
    EXPECT_THAT(parameters, ElementsAre(0, 3, 3));
  }
}

TEST(Ftrl, WithoutRegularisationFollowsAdagradsRateAndL1MakesExactZeros) {
  Floats plain = {0, 0}, sparse = {0, 0};
  const auto free = MakeFtrl({1, 0, 0});
  const auto l1 = MakeFtrl({1, 1.5, 0});
  auto free_state = NewState(*free, 2), l1_state = NewState(*l1, 2);
  for (int step = 1; step <= 10; ++step) {
    const Floats gradient = {1, step % 2 == 0 ? 1.0F : -1.0F};
    Apply(*free, {0.1, step}, plain, gradient, free_state);
    Apply(*l1, {0.1, step}, sparse, gradient, l1_state);
  }
  EXPECT_LT(plain[0], -0.1F);
  EXPECT_LT(sparse[0], 0);
  EXPECT_GT(sparse[0], plain[0]);
  EXPECT_EQ(sparse[1], 0);
  EXPECT_NE(plain[1], sparse[1] + 1);
}

// The rule as it is written: a step, then the penalty's.
float Softened(float moved, float threshold) {
  if (std::abs(moved) <= threshold) return 0;
  return moved > 0 ? moved - threshold : moved + threshold;
}

TEST(ProximalGradient, IsAStepAndThenThePenaltysWhichMakesExactZeros) {
  const auto rule = MakeProximalGradient(0.25);
  Floats parameters(101), reference(101);
  std::vector<StateVector> none;
  std::size_t zeros = 0;
  for (int step = 1; step <= 50; ++step) {
    const double rate = 0.5 / step;
    const Floats gradient = Gradient(step, parameters.size());
    Apply(*rule, {rate, step}, parameters, gradient, none);
    for (std::size_t i = 0; i < reference.size(); ++i) {
      const float moved = reference[i] - static_cast<float>(rate) * gradient[i];
      reference[i] = Softened(moved, static_cast<float>(rate) * 0.25F);
      zeros += reference[i] == 0 ? 1 : 0;
    }
    ASSERT_EQ(parameters, reference) << step;
  }
  EXPECT_GT(zeros, 0U);
  EXPECT_LT(zeros, 50 * parameters.size());
  for (const float parameter : parameters) EXPECT_FALSE(parameter == 0 && std::signbit(parameter));
}

TEST(ProximalGradient, WithoutPenaltyIsPlainDescent) {
  Floats parameters = {1, -2, 0, 3};
  std::vector<StateVector> none;
  Apply(*MakeProximalGradient(0), {0.25, 1}, parameters, Floats{4, -4, 1, 0}, none);
  EXPECT_THAT(parameters, ElementsAre(0, -1, -0.25F, 3));
}

// At any rate, also where products are rounded; and the next larger gradient does move it.
TEST(StaysZero, SaysWhatTheRuleDoesToAZero) {
  std::vector<StateVector> none;
  for (const double l1 : {1e-20, 0.003, 0.1, 0.3, 7.0}) {
    const auto rule = MakeProximalGradient(l1);
    const auto limit = static_cast<float>(l1);
    for (const double rate : {1e-9, 0.0123, 0.1, 1.0 / 3, 999.0}) {
      Floats parameters(5);
      const Floats gradient = {limit, -limit, std::nextafter(limit, 0.0F), limit * 1.001F,
                               limit * -1.001F};
      Apply(*rule, {rate, 1}, parameters, gradient, none);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        EXPECT_EQ(StaysZero(0, gradient[i], l1), parameters[i] == 0) << l1 << " " << rate;
      }
    }
  }
  EXPECT_FALSE(StaysZero(1e-30F, 0, 1)) << "it is not 0 yet";
  EXPECT_FALSE(StaysZero(0, std::nanf(""), 1));
}

// Logistic regression: sixty samples with eight features each, of which two matter.
class Lasso {
 public:
  static constexpr std::size_t kSamples = 60, kFeatures = 8;
  Lasso() : features_(kSamples * kFeatures), labels_(kSamples) {
    for (std::size_t i = 0; i < features_.size(); ++i) {
      features_[i] = std::sin(static_cast<double>(i * i) * 0.7 + 1);
    }
    for (std::size_t i = 0; i < kSamples; ++i) {
      const double* of = &features_[i * kFeatures];
      labels_[i] = 2 * of[1] - 3 * of[5] + std::sin(static_cast<double>(i)) > 0 ? 1 : 0;
    }
  }
  Floats Gradient(const Floats& weights) const {
    std::vector<double> sums(kFeatures);
    for (std::size_t i = 0; i < kSamples; ++i) {
      double score = 0;
      const double* of = &features_[i * kFeatures];
      for (std::size_t j = 0; j < kFeatures; ++j) score += of[j] * double{weights[j]};
      const double slope = 1 / (1 + std::exp(-score)) - labels_[i];
      for (std::size_t j = 0; j < kFeatures; ++j) sums[j] += slope * of[j] / kSamples;
    }
    return {sums.begin(), sums.end()};
  }
  // The largest distance from the conditions of Karush, Kuhn and Tucker.
  double Violation(const Floats& weights, double l1) const {
    const Floats gradient = Gradient(weights);
    double worst = 0;
    for (std::size_t j = 0; j < kFeatures; ++j) {
      const double g = gradient[j];
      const double from = weights[j] == 0 ? std::max(0.0, std::abs(g) - l1)
                                          : std::abs(g + std::copysign(l1, double{weights[j]}));
      worst = std::max(worst, from);
    }
    return worst;
  }

 private:
  std::vector<double> features_, labels_;
};

TEST(ProximalGradient, OfAllSamplesEndsWhereTheConditionsOfKarushKuhnAndTuckerHold) {
  constexpr double kL1 = 0.05;
  const Lasso lasso;
  const auto descended = [&](double l1) {
    Floats weights(Lasso::kFeatures);
    std::vector<StateVector> none;
    const auto rule = MakeProximalGradient(l1);
    for (int step = 1; step <= 3000; ++step) {
      Apply(*rule, {1.0, step}, weights, lasso.Gradient(weights), none);
    }
    return weights;
  };
  const Floats weights = descended(kL1);
  EXPECT_LT(lasso.Violation(weights, kL1), 1e-4);
  EXPECT_GT(std::ranges::count(weights, 0.0F), 2);
  EXPECT_NE(weights[1], 0);
  EXPECT_NE(weights[5], 0);
  EXPECT_GT(lasso.Violation(descended(2 * kL1), kL1), 1e-2) << "of another penalty they do not";
}

}  // namespace
}  // namespace starling::optimizer
