// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "common/random/philox.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/numerics/numerics.h"

namespace starling::numerics {
namespace {

using Floats = std::vector<float>;

// A bias, then a matrix of rows of 40.
const std::vector<WeightTensor> kTensors = {{"bias", {50}, 0, 50}, {"weight", {50, 40}, 50, 2000}};

v1alpha1::Numerics SpecOf(const std::string& text) {
  v1alpha1::Numerics spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}
constexpr char kFixed[] =
    "fixed_point { integer_bits: 2 fraction_bits: 10 rounding: ROUNDING_STOCHASTIC }";
constexpr char kNearest[] =
    "fixed_point { integer_bits: 2 fraction_bits: 10 rounding: ROUNDING_NEAREST }";
constexpr char kDynamic[] =
    "dynamic_fixed_point { compute_bits: 10 update_bits: 12 max_overflow: 0.0001 adjust_every: 100 "
    "}";
constexpr char kMagnitude[] = "sparsity { magnitude { share: 0.8 from_step: 5 to_step: 40 } }";
constexpr char kTwoOfFour[] = "sparsity { two_of_four {} }";

Floats NormalDraws(std::size_t count, std::uint64_t what, float scale) {
  const random::Philox source(what, random::Stream::kTest);
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = scale * static_cast<float>(source.Normal(i));
  return values;
}

// Weights that descend by small steps, as an optimizer with momentum would.
struct Trained {
  explicit Trained(const std::string& text, std::uint64_t seed = 1)
      : numerics(SpecOf(text), seed, kTensors),
        weights{NormalDraws(50, 1, 0.3F), NormalDraws(2000, 2, 0.3F)} {
    numerics.Register(parts);
    for (std::size_t i = 0; i < weights.size(); ++i) numerics.Begin(i, weights[i]);
  }
  void Step(std::int64_t step, float by = 1e-3F) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const WeightUpdate update{.tensor = i, .step = step, .samples = 10};
      Floats gradient = NormalDraws(weights[i].size(), 100 + static_cast<std::uint64_t>(step), 1);
      numerics.BeforeUpdate(update, gradient);
      for (std::size_t k = 0; k < gradient.size(); ++k) weights[i][k] -= by * gradient[k];
      numerics.AfterUpdate(update, weights[i]);
    }
  }
  Numerics numerics;
  checkpoint::StateParts parts;
  std::vector<Floats> weights;
};

class WeightRuleContract : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Each, WeightRuleContract,
                         ::testing::Values(kFixed, kNearest, kDynamic, kMagnitude, kTwoOfFour));

TEST_P(WeightRuleContract, EqualWorkersStayEqual) {
  Trained first(GetParam()), second(GetParam());
  for (int step = 1; step <= 50; ++step) {
    first.Step(step);
    second.Step(step);
  }
  EXPECT_EQ(first.weights, second.weights);
}

TEST_P(WeightRuleContract, WhoeverTakesOverTheStateGoesOnWithTheSameBits) {
  Trained first(GetParam());
  for (int step = 1; step <= 20; ++step) first.Step(step);
  Trained second(GetParam());
  second.parts.Adopt(first.parts);
  second.weights = first.weights;
  for (int step = 21; step <= 60; ++step) {
    first.Step(step);
    second.Step(step);
  }
  EXPECT_EQ(first.weights, second.weights);
}

TEST_P(WeightRuleContract, WeightsThatAreWhatTheyMayBeStaySo) {
  Trained run(GetParam());
  for (int step = 1; step <= 50; ++step) run.Step(step);
  const std::vector<Floats> before = run.weights;
  run.Step(51, 0);
  EXPECT_EQ(run.weights, before);
}

TEST_P(WeightRuleContract, ItChangesWeightsSoTheChecksCanFail) {
  Trained run(GetParam()), plain("");
  for (int step = 1; step <= 50; ++step) {
    run.Step(step);
    plain.Step(step);
  }
  EXPECT_NE(run.weights, plain.weights);
}

TEST(FixedPoint, WeightsAreMultiplesWithinTheRange) {
  Trained run(kFixed);
  for (int step = 1; step <= 50; ++step) run.Step(step, 0.3F);
  for (const Floats& tensor : run.weights) {
    for (const float weight : tensor) {
      EXPECT_EQ(weight * 1024, std::floor(weight * 1024));
      EXPECT_GE(weight, -2);
      EXPECT_LE(weight, 2 - 1.0F / 1024);
    }
  }
}

// A thousand steps of a tenth of half a multiple.
TEST(FixedPoint, SmallStepsCountByDrawsAndAreLostToNearest) {
  const auto moved = [](const char* text) {
    Trained run(text);
    std::vector<Floats> before = run.weights;
    double sum = 0;
    for (int step = 1; step <= 1000; ++step) {
      for (float& weight : run.weights[1]) weight -= 0.05F / 1024;
      run.numerics.AfterUpdate({.tensor = 1, .step = step}, run.weights[1]);
    }
    for (std::size_t i = 0; i < 2000; ++i) sum += before[1][i] - run.weights[1][i];
    return sum / 2000;
  };
  EXPECT_NEAR(moved(kFixed), 50.0 / 1024, 1.0 / 1024);
  EXPECT_EQ(moved(kNearest), 0);
}

// Draws go by seed, step and place, so parts of a tensor may be rounded apart.
TEST(FixedPoint, DrawsGoBySeedStepAndPlace) {
  Trained run(kFixed), other(kFixed, 2);
  Floats values(2000, 0.1001F);
  std::map<std::pair<int, int>, Floats> rounded;
  for (const int seed : {1, 2}) {
    for (const int step : {1, 2}) {
      Floats now = values;
      (seed == 1 ? run : other).numerics.AfterUpdate({.tensor = 1, .step = step}, now);
      rounded[{seed, step}] = now;
    }
  }
  const auto first = rounded[{1, 1}];
  const auto second = rounded[{1, 2}];
  const auto third = rounded[{2, 1}];
  EXPECT_NE(first, second);
  EXPECT_NE(first, third);
  EXPECT_GT(std::ranges::count(first, *std::ranges::max_element(first)), 0);
}

TEST(DynamicFixedPoint, TheRangeFollowsTheWeights) {
  Trained run(kDynamic);
  const auto exponent = [&] {
    for (const checkpoint::StatePart& part : run.parts.parts()) {
      if (part.name != "numerics/exponent/weight") continue;
      return *reinterpret_cast<const std::int64_t*>(part.data.data());
    }
    return std::int64_t{-1000};
  };
  const std::int64_t first = exponent();
  EXPECT_EQ(first, 1) << "the largest of the first weights is between 1 and 2";
  const auto hold = [&](float scale, int from, int steps) {
    for (int step = from; step < from + steps; ++step) {
      run.weights[1] = NormalDraws(2000, 2, scale);
      run.numerics.AfterUpdate({.tensor = 1, .step = step, .samples = 10}, run.weights[1]);
    }
  };
  hold(3, 1, 100);  // ten looks
  EXPECT_EQ(exponent(), 4) << "the largest is above 8";
  hold(0.03F, 101, 100);
  EXPECT_EQ(exponent(), -3) << "the largest is below 1/8";
  std::set<float> levels(run.weights[1].begin(), run.weights[1].end());
  for (const float level : levels) {
    EXPECT_EQ(level * 16384, std::floor(level * 16384)) << "12 bits below 1/8";
  }
}

double ZerosOf(const Floats& weights) {
  return static_cast<double>(std::ranges::count(weights, 0.0F)) /
         static_cast<double>(weights.size());
}

TEST(Sparsity, MagnitudePruningTakesTheSmallestAndTheyStayZero) {
  Trained run(kMagnitude);
  run.Step(5);
  EXPECT_EQ(ZerosOf(run.weights[1]), 0);
  for (int step = 6; step <= 22; ++step) run.Step(step);
  const double half_way = ZerosOf(run.weights[1]);
  EXPECT_GT(half_way, 0.5);
  EXPECT_LT(half_way, 0.79);
  for (int step = 23; step <= 40; ++step) run.Step(step);
  EXPECT_NEAR(ZerosOf(run.weights[1]), 0.8, 0.001);
  EXPECT_EQ(ZerosOf(run.weights[0]), 0) << "a bias has no mask";
  float smallest = 100;
  for (const float weight : run.weights[1]) {
    if (weight != 0) smallest = std::min(smallest, std::abs(weight));
  }
  EXPECT_GT(smallest, 0.25) << "0.8 of normal numbers are within 1.28 deviations";
  const Floats before = run.weights[1];
  for (int step = 41; step <= 1041; ++step) run.Step(step);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i] == 0, run.weights[1][i] == 0) << i;
  }
}

TEST(Sparsity, TwoOfFourInARowAreZero) {
  Trained run(kTwoOfFour);
  for (int step = 1; step <= 20; ++step) run.Step(step);
  for (std::size_t i = 0; i < 2000; i += 4) {
    EXPECT_EQ(std::ranges::count(std::span(run.weights[1]).subspan(i, 4), 0.0F), 2) << i;
  }
  EXPECT_EQ(run.numerics.Told().front().second, 0.5);
}

TEST(Sparsity, MaskedGradientsAreZeroBeforeAnOptimizerSeesThem) {
  Trained run(kTwoOfFour);
  Floats gradient(2000, 1);
  run.numerics.BeforeUpdate({.tensor = 1, .step = 1}, gradient);
  EXPECT_EQ(ZerosOf(gradient), 0.5);
}

}  // namespace
}  // namespace starling::numerics
