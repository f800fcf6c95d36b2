// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/work_plan.h"

#include <limits>

#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::parameter_server {
namespace {

v1alpha1::TrainingJobSpec SpecOf(std::int64_t samples_per_push) {
  v1alpha1::TrainingJobSpec spec;
  v1alpha1::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.mutable_consistency()->mutable_asynchronous();
  server.set_samples_per_push(samples_per_push);
  spec.mutable_stop()->set_epochs(3);
  return spec;
}

TEST(WorkPlan, TheLastTurnIsThatOfTheEpochInWhichTheLastBatchLies) {
  WorkPlan plan{.per_epoch = 10, .total = 11, .every = 1};
  EXPECT_EQ(plan.TurnAfter(1), 2);
  EXPECT_EQ(plan.TurnAfter(2), 0);
  plan.total = 10;
  EXPECT_EQ(plan.TurnAfter(1), 0);
  plan.total = 1;
  EXPECT_EQ(plan.TurnAfter(0), 1);
  plan.total = 0;
  EXPECT_EQ(plan.TurnAfter(0), 0) << "without a batch there is nothing to validate";
  EXPECT_TRUE(plan.Over(0, 0));
}

TEST(WorkPlan, ProductsThatFitAreExactAndLargerOnesAreTheMost) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() >> 22;
  const WorkPlan plan{.per_epoch = kMost / 3, .total = kMost, .every = 0};
  EXPECT_EQ(plan.BatchesBefore(3), kMost / 3 * 3);
  EXPECT_EQ(plan.BatchesBefore(4), kMost);
}

TEST(WorkPlan, ItIsNotOverWhileABatchIsOpen) {
  const WorkPlan plan{.per_epoch = 10, .total = 35, .every = 0};
  EXPECT_FALSE(plan.Over(0, 34));
  EXPECT_TRUE(plan.Over(0, 35));
}

TEST(WorkPlan, AnEpochIsAsManyBatchesAsHoldAllSamples) {
  for (const auto& [samples, batch, batches] :
       {std::tuple{8, 4, 2}, {9, 4, 3}, {4, 4, 1}, {3, 4, 1}, {10, 1, 10}, {0, 4, 1}}) {
    const v1alpha1::TrainingJobSpec spec = SpecOf(batch);
    const WorkPlan plan = WorkOf(spec, spec.stop(), samples);
    EXPECT_EQ(plan.per_epoch, batches) << samples << " in " << batch;
    EXPECT_EQ(plan.total, 3 * batches);
  }
}

TEST(WorkPlan, StepsOrEpochsWhicheverEndsFirst) {
  v1alpha1::TrainingJobSpec spec = SpecOf(4);
  spec.mutable_stop()->set_steps(5);
  EXPECT_EQ(WorkOf(spec, spec.stop(), 8).total, 5);
  spec.mutable_stop()->set_steps(7);
  EXPECT_EQ(WorkOf(spec, spec.stop(), 8).total, 6);
}

TEST(WorkPlan, WithoutASayItIsValidatedAfterEachEpoch) {
  v1alpha1::TrainingJobSpec spec = SpecOf(4);
  EXPECT_EQ(WorkOf(spec, spec.stop(), 8).every, 0) << "there is nothing to validate on";
  spec.mutable_dataset()->mutable_validation();
  EXPECT_EQ(WorkOf(spec, spec.stop(), 8).every, 1);
  spec.mutable_validation()->set_every_epochs(2);
  EXPECT_EQ(WorkOf(spec, spec.stop(), 8).every, 2);
}

TEST(WorkPlan, TheWarmStartIsAsManyLeasesAsHoldItsSteps) {
  v1alpha1::TrainingJobSpec spec = SpecOf(4);
  v1alpha1::LocalSgd& local = *spec.mutable_update()->mutable_local_sgd();
  local.set_warm_start(3);
  EXPECT_EQ(WorkOf(spec, spec.stop(), 8).warm_start, 3);
  local.set_push_every(2);
  EXPECT_EQ(WorkOf(spec, spec.stop(), 8).warm_start, 2);
  local.set_warm_start(4);
  EXPECT_EQ(WorkOf(spec, spec.stop(), 8).warm_start, 2);
}

}  // namespace
}  // namespace starling::parameter_server
