// SPDX-License-Identifier: Apache-2.0
// What single optimizers do with single numbers; what all of them promise is in contract_test.cc.
#include "trainer/optimizer/optimizer.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::optimizer {
namespace {

using ::testing::ElementsAre;
using Floats = std::vector<float>;

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

TEST(Sgd, WithoutMomentumSubtractsRateTimesGradient) {
  const auto optimizer = Make(Sgd(0, 0, false));
  EXPECT_TRUE(optimizer->state_names().empty());
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
  EXPECT_DEATH(Apply(*optimizer, {.learning_rate = 1}, parameters, Floats(3), state), "vector");
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
