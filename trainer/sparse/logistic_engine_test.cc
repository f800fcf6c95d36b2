// SPDX-License-Identifier: Apache-2.0
#include "trainer/sparse/logistic_engine.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/libsvm_source.h"

namespace starling::sparse {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kHashed = 1000;

std::shared_ptr<const data::SparseDataset> Samples() {
  auto set = data::ParseLibsvm("1 1:1 2:2\n-1 2:1 3:1\n", kHashed, true);
  EXPECT_TRUE(set.ok()) << set.status();
  return std::make_shared<const data::SparseDataset>(*std::move(set));
}

TEST(LogisticEngine, TouchesExactlyTheWeightsOfItsSamples) {
  const LogisticEngine engine(Samples(), 0);
  const std::vector<float> both = {0, 1}, second = {1};
  EXPECT_THAT(engine.Touched(both), testing::UnorderedElementsAre(data::HashedFeature(1, kHashed),
                                                                  data::HashedFeature(2, kHashed),
                                                                  data::HashedFeature(3, kHashed)));
  EXPECT_EQ(engine.Touched(second).size(), 2U);
  EXPECT_EQ(engine.AllTouched().size(), 3U);
}

TEST(LogisticEngine, GradientsAreThoseOfTheLoss) {
  LogisticEngine engine(Samples(), 0.1);
  const std::vector<float> batch = {0, 1};
  const std::vector<int64_t> labels = {1, 0};
  const auto touched = engine.Touched(batch);
  for (std::size_t i = 0; i < touched.size(); ++i) {
    engine.parameters()[touched[i]] = 0.3F - 0.2F * static_cast<float>(i);
  }
  ASSERT_TRUE(engine.ComputeGradients(batch, labels, [](int64_t) {}).ok());
  const std::vector<float> gradients(engine.gradients().begin(), engine.gradients().end());
  const auto loss = [&] {
    double penalty = 0;
    for (const std::uint64_t one : touched) {
      penalty += 0.1 / 2 * double{engine.parameters()[one]} * double{engine.parameters()[one]};
    }
    return engine.Evaluate(batch, labels)->loss + 2 * penalty;
  };
  for (const std::uint64_t one : touched) {
    constexpr float kStep = 1e-3F;
    const float before = engine.parameters()[one];
    engine.parameters()[one] = before + kStep;
    const double above = loss();
    engine.parameters()[one] = before - kStep;
    const double below = loss();
    engine.parameters()[one] = before;
    EXPECT_NEAR(gradients[one], (above - below) / (2 * double{kStep}), 1e-3);
  }
}

TEST(LogisticEngine, WhatAnEarlierBatchLeftIsNotInTheNext) {
  LogisticEngine engine(Samples(), 0);
  const std::vector<float> first = {0}, second = {1};
  const std::vector<int64_t> positive = {1}, negative = {0};
  (void)engine.ComputeGradients(first, positive, [](int64_t) {});
  (void)engine.ComputeGradients(second, negative, [](int64_t) {});
  EXPECT_FLOAT_EQ(engine.gradients()[data::HashedFeature(2, kHashed)], 0.5F);
}

TEST(LogisticEngine, LossStaysANumberForLargeScores) {
  LogisticEngine engine(Samples(), 0);
  engine.parameters()[data::HashedFeature(1, kHashed)] = -1e5F;
  const std::vector<float> batch = {0};
  const std::vector<int64_t> labels = {1};
  EXPECT_NEAR(engine.Evaluate(batch, labels)->loss, 1e5, 1);
  EXPECT_EQ(engine.Evaluate(batch, labels)->correct, 0);
}

TEST(LogisticEngine, OneBucketIsReadyAtTheEnd) {
  LogisticEngine engine(Samples(), 0);
  std::vector<int64_t> told;
  const std::vector<float> batch = {0};
  const std::vector<int64_t> labels = {1};
  (void)engine.ComputeGradients(batch, labels, [&](int64_t bucket) { told.push_back(bucket); });
  EXPECT_THAT(told, ElementsAre(0));
}

}  // namespace
}  // namespace starling::sparse
