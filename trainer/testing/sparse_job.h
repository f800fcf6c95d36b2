// SPDX-License-Identifier: Apache-2.0
// For tests: jobs with sparse models, of which some count in whole numbers what was added to them,
// and some learn.
#pragma once

#include "trainer/data/sparse_dataset.h"
#include "trainer/testing/count_workload.h"
#include "trainer/testing/random_samples.h"
#include "trainer/testing/visit_job.h"
#include "trainer/workload/sparse_logistic_regression.h"

namespace starling::worker {

inline v1alpha1::TrainingJobSpec HogwildJob(std::int64_t epochs, int threads) {
  v1alpha1::TrainingJobSpec spec = VisitJob(epochs);
  spec.mutable_workload()->mutable_sparse_logistic_regression();
  spec.mutable_update()->mutable_hogwild()->set_threads(threads);
  return spec;
}

class SparseJobTest : public ClientWorkerTest {
 protected:
  static std::unique_ptr<workload::Workload> NewCountWorkload(int /*worker*/) {
    return std::make_unique<workload::CountWorkload>(kSamples);
  }
  // Whole numbers, exactly: each sample's own parameter, and the one that all share.
  static void ExpectEachSampleCounted(const v1alpha1::Result& result, std::int64_t epochs) {
    std::vector<float> counts = TensorOf(result, "counts");
    ASSERT_THAT(counts, ::testing::SizeIs(kSamples + 1));
    EXPECT_EQ(counts.back(), static_cast<float>(epochs * kSamples));
    counts.pop_back();
    EXPECT_THAT(counts, ::testing::Each(static_cast<float>(epochs)));
  }
};

// Of ten features of two thousand.
inline std::shared_ptr<const data::SparseDataset> LearnableSamples() {
  return workload::RandomSamples(5 * kSamples, 2000, 10);
}

// Logistic regression that is validated on the samples that it learns from.
inline ServerCluster::MakeWorkload Logistic(
    const std::shared_ptr<const data::SparseDataset>& samples) {
  return [samples](int /*worker*/) {
    return std::make_unique<workload::SparseLogisticRegression>(samples, samples, /*l2=*/0);
  };
}

}  // namespace starling::worker
