// SPDX-License-Identifier: Apache-2.0
// What LARS does with whole matrices; what it has in common with all optimizers stands in
// contract_test.cc.
#include <cmath>
#include <vector>

#include "common/random/philox.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/optimizer.h"

namespace starling::optimizer {
namespace {

using Floats = std::vector<float>;

constexpr double kTrust = 0.02, kLarsRate = 0.5;

std::unique_ptr<Optimizer> MakeLars(double momentum = 0, double decay = 0) {
  v1alpha1::Optimizer spec;
  spec.mutable_lars()->set_trust(kTrust);
  spec.mutable_lars()->set_momentum(momentum);
  spec.mutable_lars()->set_weight_decay(decay);
  return *MakeOptimizer(spec);
}

Floats Draws(std::uint64_t what, float scale = 1) {
  Floats values(300);
  const random::Philox source(what, random::Stream::kTest);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * static_cast<float>(source.Normal(i));
  }
  return values;
}

double Norm(const Floats& values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * double{value};
  return std::sqrt(squares);
}

// How far it moves, beside the length of the weights.
double Moved(const Optimizer& rule, const Floats& from, const Floats& gradient, bool matrix) {
  Floats weights = from;
  std::vector<StateVector> state = NewState(rule, weights.size());
  Apply(rule, {.learning_rate = kLarsRate, .number = 1, .whole_matrix = matrix}, weights, gradient,
        state);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= from[i];
  return Norm(weights) / Norm(from);
}

TEST(Lars, AStepIsAsLongBesideItsWeightsHoweverLongTheGradient) {
  for (const float scale : {1e-6F, 1.0F, 1e6F}) {
    EXPECT_NEAR(Moved(*MakeLars(), Draws(1), Draws(2, scale), true) / (kTrust * kLarsRate), 1, 1e-4)
        << scale;
    EXPECT_NEAR(Moved(*MakeLars(), Draws(1, scale), Draws(2), true) / (kTrust * kLarsRate), 1, 1e-4)
        << scale;
  }
  EXPECT_NEAR(Moved(*MakeLars(), Draws(1), Draws(2, 1e6F), false) / 1e6, kLarsRate, 0.1)
      << "of a bias it grows with the gradient, so the check can fail";
}

TEST(Lars, FollowsItsFormula) {
  const auto rule = MakeLars(0.9, 0.1);
  Floats weights = Draws(3);
  std::vector<StateVector> state = NewState(*rule, weights.size());
  std::vector<double> expected(weights.begin(), weights.end()), momentum(weights.size());
  for (int step = 1; step <= 50; ++step) {
    const Floats gradient = Draws(static_cast<std::uint64_t>(10 + step));
    const double rate = kLarsRate / step;  // the rate is in the momentum
    Apply(*rule, {.learning_rate = rate, .number = step, .whole_matrix = true}, weights, gradient,
          state);
    double squares = 0;
    for (const double weight : expected) squares += weight * weight;
    const double length = std::sqrt(squares);
    const double ratio = kTrust * length / (Norm(gradient) + 0.1 * length);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      momentum[i] = 0.9 * momentum[i] + rate * ratio * (double{gradient[i]} + 0.1 * expected[i]);
      expected[i] -= momentum[i];
    }
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(weights[i], expected[i], 1e-5) << i;
  }
}

TEST(Lars, WithoutWeightsOrWithoutAGradientItIsAPlainStep) {
  const auto rule = MakeLars();
  Floats weights(300);
  std::vector<StateVector> state = NewState(*rule, weights.size());
  const Floats gradient = Draws(1);
  Apply(*rule, {.learning_rate = kLarsRate, .number = 1, .whole_matrix = true}, weights, gradient,
        state);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_FLOAT_EQ(weights[i], static_cast<float>(-kLarsRate) * gradient[i]);
  }
  EXPECT_EQ(Moved(*rule, Draws(1), Floats(300), true), 0);
}

}  // namespace
}  // namespace starling::optimizer
