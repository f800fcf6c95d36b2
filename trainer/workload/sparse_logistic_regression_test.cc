// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/sparse_logistic_regression.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/libsvm_source.h"

namespace starling::workload {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kHashed = 1000;

std::shared_ptr<const data::SparseDataset> Samples() {
  auto set = data::ParseLibsvm("1 1:1 2:2\n-1 2:1 3:1\n", kHashed, true);
  EXPECT_TRUE(set.ok()) << set.status();
  return std::make_shared<const data::SparseDataset>(*std::move(set));
}

TEST(SparseLogisticRegression, TouchesExactlyTheWeightsOfItsSamples) {
  const SparseLogisticRegression workload(Samples(), Samples(), 0);
  const std::vector<std::int64_t> both = {0, 1}, second = {1};
  EXPECT_THAT(workload.Rows(both), testing::UnorderedElementsAre(data::HashedFeature(1, kHashed),
                                                                 data::HashedFeature(2, kHashed),
                                                                 data::HashedFeature(3, kHashed)));
  EXPECT_EQ(workload.Rows(second).size(), 2U);
  EXPECT_EQ(workload.AllRows().size(), 3U);
}

TEST(SparseLogisticRegression, GradientsAreThoseOfTheLoss) {
  SparseLogisticRegression workload(Samples(), Samples(), 0.1);
  const std::vector<std::int64_t> batch = {0, 1};
  const auto touched = workload.Rows(batch);
  for (std::size_t i = 0; i < touched.size(); ++i) {
    workload.parameters()[touched[i]] = 0.3F - 0.2F * static_cast<float>(i);
  }
  ASSERT_TRUE(workload.Compute(batch, {}).ok());
  const std::vector<float> gradients(workload.gradients().begin(), workload.gradients().end());
  const auto loss = [&] {
    double penalty = 0;
    for (const std::uint64_t one : touched) {
      penalty += 0.1 / 2 * double{workload.parameters()[one]} * double{workload.parameters()[one]};
    }
    return workload.Evaluate(0, 2)->front().sum + 2 * penalty;
  };
  for (const std::uint64_t one : touched) {
    constexpr float kStep = 1e-3F;
    const float before = workload.parameters()[one];
    workload.parameters()[one] = before + kStep;
    const double above = loss();
    workload.parameters()[one] = before - kStep;
    const double below = loss();
    workload.parameters()[one] = before;
    EXPECT_NEAR(gradients[one], (above - below) / (2 * double{kStep}), 1e-3);
  }
}

TEST(SparseLogisticRegression, WhatAnEarlierBatchLeftIsNotInTheNext) {
  SparseLogisticRegression workload(Samples(), Samples(), 0);
  const std::vector<std::int64_t> first = {0}, second = {1};
  (void)workload.Compute(first, {});
  (void)workload.Compute(second, {});
  EXPECT_FLOAT_EQ(workload.gradients()[data::HashedFeature(2, kHashed)], 0.5F);
}

TEST(SparseLogisticRegression, LossStaysANumberForLargeScores) {
  SparseLogisticRegression workload(Samples(), Samples(), 0);
  workload.parameters()[data::HashedFeature(1, kHashed)] = -1e5F;
  const absl::StatusOr<Sums> sums = workload.Evaluate(0, 1);
  ASSERT_TRUE(sums.ok());
  EXPECT_NEAR((*sums)[0].sum, 1e5, 1);
  EXPECT_EQ((*sums)[1], (Sum{0, 1}));
}

TEST(SparseLogisticRegression, OneBucketIsReadyAtTheEnd) {
  SparseLogisticRegression workload(Samples(), Samples(), 0);
  std::vector<int64_t> told;
  const std::vector<std::int64_t> batch = {0};
  (void)workload.Compute(batch, {.push = [&](int64_t bucket) { told.push_back(bucket); }});
  EXPECT_THAT(told, ElementsAre(0));
}

}  // namespace
}  // namespace starling::workload
