// SPDX-License-Identifier: Apache-2.0
#include "trainer/optimizer/server_rules.h"

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

std::vector<std::span<float>> SpansOf(std::vector<StateSlot>& state) {
  std::vector<std::span<float>> spans;
  spans.reserve(state.size());
  for (StateSlot& slot : state) spans.emplace_back(slot.values);
  return spans;
}

TEST(Add, IsThePushedChange) {
  Floats parameters = {1, 2};
  std::vector<StateSlot> none;
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

}  // namespace
}  // namespace starling::optimizer
