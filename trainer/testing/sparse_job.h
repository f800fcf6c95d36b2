// SPDX-License-Identifier: Apache-2.0
// For tests: jobs with sparse models, of which some count in whole numbers what was added to them,
// and some learn.
#pragma once

#include "trainer/data/sparse_dataset.h"
#include "trainer/testing/count_engine.h"
#include "trainer/testing/random_samples.h"
#include "trainer/testing/visit_job.h"

namespace starling::worker {

inline v1alpha1::TrainingJobSpec HogwildJob(std::int64_t epochs, int threads) {
  v1alpha1::TrainingJobSpec spec = VisitJob(epochs);
  spec.mutable_workload()->mutable_sparse_logistic_regression();
  spec.mutable_update()->mutable_hogwild()->set_threads(threads);
  return spec;
}

class SparseJobTest : public ClientWorkerTest {
 protected:
  static std::unique_ptr<engine::Engine> NewCountEngine(int /*worker*/) {
    return std::make_unique<sparse::CountEngine>(kSamples);
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
  return sparse::RandomSamples(5 * kSamples, 2000, 10);
}

inline data::Datasets DatasetsOf(const std::shared_ptr<const data::SparseDataset>& samples) {
  data::Datasets datasets;
  datasets.sparse = samples;
  datasets.digest = "0123456789abcdef0123456789abcdef";
  datasets.train.shape = {1};
  datasets.train.classes = 2;
  for (std::int64_t i = 0; i < samples->size(); ++i) {
    datasets.train.features.push_back(static_cast<float>(i));
    datasets.train.labels.push_back(samples->labels[static_cast<std::size_t>(i)] > 0 ? 1 : 0);
  }
  datasets.validation = datasets.train;
  return datasets;
}

}  // namespace starling::worker
