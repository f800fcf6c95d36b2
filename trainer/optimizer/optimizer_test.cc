// SPDX-License-Identifier: Apache-2.0
#include "trainer/optimizer/optimizer.h"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::optimizer {
namespace {

using ::testing::ElementsAre;
using Floats = std::vector<float>;

constexpr std::size_t kCount = 203;  // no multiple of any vector's width

v1alpha1::Optimizer Sgd(double momentum, double decay, bool nesterov) {
  v1alpha1::Optimizer spec;
  spec.mutable_sgd()->set_momentum(momentum);
  spec.mutable_sgd()->set_weight_decay(decay);
  spec.mutable_sgd()->set_nesterov(nesterov);
  return spec;
}

v1alpha1::Optimizer Adam(double decay, bool decoupled) {
  v1alpha1::Optimizer spec;
  (decoupled ? spec.mutable_adam_w() : spec.mutable_adam())->set_weight_decay(decay);
  return spec;
}

std::unique_ptr<Optimizer> Make(const v1alpha1::Optimizer& spec) {
  auto optimizer = MakeOptimizer(spec);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  return *std::move(optimizer);
}

float Gradient(std::int64_t step, std::size_t i) {
  return static_cast<float>(
      random::Philox(4, random::Stream::kTest, static_cast<std::uint64_t>(step)).Normal(i));
}

Floats Start() {
  Floats parameters(kCount);
  for (std::size_t i = 0; i < kCount; ++i) parameters[i] = Gradient(0, i);
  return parameters;
}

// The parameters after `steps` updates at rate 0.01.
Floats Train(const Optimizer& optimizer, int steps) {
  Floats parameters = Start();
  std::vector<StateSlot> state = NewState(optimizer, kCount);
  Floats gradient(kCount);
  for (int step = 1; step <= steps; ++step) {
    for (std::size_t i = 0; i < kCount; ++i) gradient[i] = Gradient(step, i);
    Apply(optimizer, {.learning_rate = 0.01, .number = step}, parameters, gradient, state);
  }
  return parameters;
}

TEST(Sgd, WithoutMomentumSubtractsRateTimesGradient) {
  const auto optimizer = Make(Sgd(0, 0, false));
  EXPECT_TRUE(optimizer->slot_names().empty());
  Floats parameters = {1, 2};
  auto state = NewState(*optimizer, 2);
  Apply(*optimizer, {.learning_rate = 0.5}, parameters, Floats{2, -4}, state);
  EXPECT_THAT(parameters, ElementsAre(0, 4));
}

TEST(Sgd, MomentumsFirstStepIsTheGradientAndLaterOnesRemember) {
  const auto optimizer = Make(Sgd(0.5, 0, false));
  Floats parameters = {0};
  auto state = NewState(*optimizer, 1);
  Apply(*optimizer, {.learning_rate = 1, .number = 1}, parameters, Floats{8}, state);
  EXPECT_THAT(parameters, ElementsAre(-8));
  Apply(*optimizer, {.learning_rate = 1, .number = 2}, parameters, Floats{2}, state);
  EXPECT_THAT(state[0].values, ElementsAre(6));  // 0.5 * 8 + 2
  EXPECT_THAT(parameters, ElementsAre(-14));
}

TEST(Sgd, NesterovLooksOneStepAheadAndDecayJoinsTheGradient) {
  const auto optimizer = Make(Sgd(0.5, 0.25, true));
  Floats parameters = {4};
  auto state = NewState(*optimizer, 1);
  Apply(*optimizer, {.learning_rate = 1, .number = 1}, parameters, Floats{1}, state);
  // direction 1 + 0.25 * 4 = 2, buffer 2, update 2 + 0.5 * 2 = 3
  EXPECT_THAT(parameters, ElementsAre(1));
}

TEST(Adam, TheFirstStepHasTheSizeOfTheRateWhateverTheGradient) {
  const auto optimizer = Make(Adam(0, false));
  Floats parameters = {1, 1, 1};
  auto state = NewState(*optimizer, 3);
  Apply(*optimizer, {.learning_rate = 0.125, .number = 1}, parameters, Floats{0.001F, -50, 3},
        state);
  EXPECT_NEAR(parameters[0], 0.875, 1e-5);
  EXPECT_NEAR(parameters[1], 1.125, 1e-6);
  EXPECT_NEAR(parameters[2], 0.875, 1e-6);
}

TEST(AdamW, DecayShrinksTheParametersByItself) {
  const auto optimizer = Make(Adam(0.5, true));
  Floats parameters = {2};
  auto state = NewState(*optimizer, 1);
  Apply(*optimizer, {.learning_rate = 0.1, .number = 1}, parameters, Floats{0}, state);
  EXPECT_FLOAT_EQ(parameters[0], 2 * (1 - 0.1F * 0.5F));
}

// The published rules in double precision, written anew.
using Reference =
    std::function<double(double parameter, double gradient, int step, std::vector<double>& memory)>;

Reference SgdReference(double momentum, double decay, bool nesterov) {
  return [=](double p, double g, int step, std::vector<double>& memory) {
    g += decay * p;
    memory[0] = step == 1 ? g : momentum * memory[0] + g;
    return p - 0.01 * (nesterov ? g + momentum * memory[0] : memory[0]);
  };
}

Reference AdamReference(double decay, bool decoupled) {
  return [=](double p, double g, int step, std::vector<double>& memory) {
    if (decoupled) p -= 0.01 * decay * p;
    if (!decoupled) g += decay * p;
    memory[0] = 0.9 * memory[0] + 0.1 * g;
    memory[1] = 0.999 * memory[1] + 0.001 * g * g;
    const double mean = memory[0] / (1 - std::pow(0.9, step));
    const double variance = memory[1] / (1 - std::pow(0.999, step));
    return p - 0.01 * mean / (std::sqrt(variance) + 1e-8);
  };
}

// The largest distance from the reference after 100 steps.
double Distance(const v1alpha1::Optimizer& spec, const Reference& reference) {
  const Floats result = Train(*Make(spec), 100);
  const Floats start = Start();
  double largest = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    double parameter = start[i];
    std::vector<double> memory(2);
    for (int step = 1; step <= 100; ++step) {
      parameter = reference(parameter, Gradient(step, i), step, memory);
    }
    largest = std::max(largest, std::abs(parameter - result[i]));
  }
  return largest;
}

constexpr double kClose = 2e-5;

TEST(Optimizer, FollowsTheDoublePrecisionReferenceOverAHundredSteps) {
  EXPECT_LT(Distance(Sgd(0, 0, false), SgdReference(0, 0, false)), kClose);
  EXPECT_LT(Distance(Sgd(0, 0.1, false), SgdReference(0, 0.1, false)), kClose);
  EXPECT_LT(Distance(Sgd(0.9, 0, false), SgdReference(0.9, 0, false)), kClose);
  EXPECT_LT(Distance(Sgd(0.9, 0.1, false), SgdReference(0.9, 0.1, false)), kClose);
  EXPECT_LT(Distance(Sgd(0.9, 0.1, true), SgdReference(0.9, 0.1, true)), kClose);
  EXPECT_LT(Distance(Adam(0, false), AdamReference(0, false)), kClose);
  EXPECT_LT(Distance(Adam(0.1, false), AdamReference(0.1, false)), kClose);
  EXPECT_LT(Distance(Adam(0.1, true), AdamReference(0.1, true)), kClose);
}

TEST(Optimizer, TheReferenceTellsEveryTermApart) {
  EXPECT_GT(Distance(Sgd(0.9, 0.1, true), SgdReference(0.9, 0.1, false)), 100 * kClose);
  EXPECT_GT(Distance(Sgd(0.9, 0.1, false), SgdReference(0.9, 0.0, false)), 100 * kClose);
  EXPECT_GT(Distance(Sgd(0.9, 0, false), SgdReference(0.8, 0, false)), 100 * kClose);
  EXPECT_GT(Distance(Adam(0.1, true), AdamReference(0.1, false)), 100 * kClose);
  EXPECT_GT(Distance(Adam(0.1, true), AdamReference(0, true)), 100 * kClose);
}

TEST(Optimizer, AnyCutOfTheParametersGivesTheSameBits) {
  for (const auto& spec : {Sgd(0.9, 0.1, true), Adam(0.1, false), Adam(0.1, true)}) {
    const auto optimizer = Make(spec);
    const Floats whole = Train(*optimizer, 20);
    Floats parts = Start();
    std::vector<StateSlot> state = NewState(*optimizer, kCount);
    Floats gradient(kCount);
    for (int step = 1; step <= 20; ++step) {
      for (std::size_t i = 0; i < kCount; ++i) gradient[i] = Gradient(step, i);
      for (std::size_t begin = 0; begin < kCount;) {
        const std::size_t size = std::min<std::size_t>(1 + begin % 37, kCount - begin);
        std::vector<std::span<float>> slots;
        slots.reserve(state.size());
        for (StateSlot& slot : state) slots.push_back(std::span(slot.values).subspan(begin, size));
        optimizer->Apply({.learning_rate = 0.01, .number = step},
                         std::span(parts).subspan(begin, size),
                         std::span(gradient).subspan(begin, size), slots);
        begin += size;
      }
    }
    EXPECT_EQ(parts, whole);
  }
}

TEST(Optimizer, StateThatIsCopiedGoesOnAsIfNothingHadHappened) {
  const auto optimizer = Make(Adam(0.1, true));
  Floats gradient(kCount, 0.5F);
  Floats parameters = Start();
  auto state = NewState(*optimizer, kCount);
  Apply(*optimizer, {.learning_rate = 0.01, .number = 1}, parameters, gradient, state);
  Floats copy = parameters;
  auto state_copy = state;
  Apply(*optimizer, {.learning_rate = 0.01, .number = 2}, parameters, gradient, state);
  Apply(*Make(Adam(0.1, true)), {.learning_rate = 0.01, .number = 2}, copy, gradient, state_copy);
  EXPECT_EQ(copy, parameters);
}

TEST(Optimizer, SlotsAreNamed) {
  EXPECT_THAT(Make(Sgd(0.9, 0, false))->slot_names(), ElementsAre("momentum"));
  EXPECT_THAT(Make(Adam(0, false))->slot_names(), ElementsAre("mean", "variance"));
  EXPECT_TRUE(Make(v1alpha1::Optimizer())->slot_names().empty());
}

TEST(Optimizer, NesterovWithoutMomentumIsRefused) {
  const auto optimizer = MakeOptimizer(Sgd(0, 0, true));
  ASSERT_FALSE(optimizer.ok());
  EXPECT_NE(optimizer.status().message().find("spec.optimizer.sgd.nesterov"),
            absl::string_view::npos);
}

using OptimizerDeathTest = ::testing::Test;

TEST(OptimizerDeathTest, SizesThatDisagreeAreOurOwnMistake) {
  const auto optimizer = Make(Sgd(0.9, 0, false));
  Floats parameters(3);
  auto state = NewState(*optimizer, 2);
  EXPECT_DEATH(Apply(*optimizer, {.learning_rate = 1}, parameters, Floats(3), state), "slot");
}

TEST(LearningRate, IsTheRulesOwnWhenNoScheduleIsGiven) {
  EXPECT_EQ(LearningRate(v1alpha1::Optimizer(), 1), 0.05);
  EXPECT_EQ(LearningRate(Adam(0, true), 7), 0.001);
  v1alpha1::Optimizer spec = Sgd(0, 0, false);
  spec.mutable_sgd()->set_learning_rate(0.5);
  EXPECT_EQ(LearningRate(spec, 1'000'000), 0.5);
}

TEST(LearningRate, GrowsOverTheWarmUpAndThenFollowsItsKind) {
  v1alpha1::LearningRateSchedule schedule;
  schedule.set_warmup_steps(4);
  EXPECT_EQ(LearningRate(schedule, 1, 1), 0.25);
  EXPECT_EQ(LearningRate(schedule, 1, 4), 1);
  EXPECT_EQ(LearningRate(schedule, 1, 5), 1);
  schedule.mutable_step()->set_every(2);
  schedule.mutable_step()->set_factor(0.5);
  EXPECT_EQ(LearningRate(schedule, 1, 4), 1);
  EXPECT_EQ(LearningRate(schedule, 1, 6), 1);
  EXPECT_EQ(LearningRate(schedule, 1, 7), 0.5);
  EXPECT_EQ(LearningRate(schedule, 1, 9), 0.25);
}

TEST(LearningRate, TheCosineStartsAtTheRateAndEndsAtTheMinimumForGood) {
  v1alpha1::LearningRateSchedule schedule;
  schedule.mutable_cosine()->set_steps(10);
  schedule.mutable_cosine()->set_minimum(0.2);
  EXPECT_EQ(LearningRate(schedule, 2, 1), 2);
  EXPECT_NEAR(LearningRate(schedule, 2, 6), 2 * 0.6, 1e-12);
  EXPECT_NEAR(LearningRate(schedule, 2, 11), 0.4, 1e-12);
  EXPECT_NEAR(LearningRate(schedule, 2, 1000), 0.4, 1e-12);
}

}  // namespace
}  // namespace starling::optimizer
