// SPDX-License-Identifier: Apache-2.0
// Logistic regression over sparse samples (workload.sparseLogisticRegression), as an engine: the
// worker's loops, validation and results work with it as with any other.
//
// A "feature" that it is handed is the number of a sample in the sparse set (data::Datasets says
// how): what is gathered for a batch is a list of numbers, and the samples stay where they are.
// Gradients cost as much as the batch has features, however many weights there are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/data/sparse_dataset.h"
#include "trainer/engine/sparse_engine.h"

namespace starling::sparse {

// Confined to one thread, but for Descend.
class LogisticEngine final : public engine::SparseEngine {
 public:
  // `l2`: the penalty l2 / 2 |w|^2 of a sample's loss, over the weights that a batch touches, or in
  // Descend, that the sample touches.
  LogisticEngine(std::shared_ptr<const data::SparseDataset> samples, double l2);

  std::span<const engine::Tensor> tensors() const override { return tensors_; }
  std::span<float> parameters() override { return weights_; }
  std::span<float> gradients() override { return gradients_; }
  std::span<const engine::Bucket> buckets() const override { return buckets_; }
  // Labels are 1 for the positive class, else 0.
  absl::StatusOr<engine::BatchSums> ComputeGradients(std::span<const float> features,
                                                     std::span<const int64_t> labels,
                                                     const OnBucket& on_bucket) override;
  absl::StatusOr<engine::BatchSums> Evaluate(std::span<const float> features,
                                             std::span<const int64_t> labels) override;
  std::vector<std::uint64_t> Touched(std::span<const float> features) const override;
  engine::BatchSums Descend(std::span<const float> features, std::span<const int64_t> labels,
                            double rate) override;
  std::span<const std::uint64_t> AllTouched() const override { return all_; }

 private:
  double Score(std::int64_t sample) const;

  const std::shared_ptr<const data::SparseDataset> samples_;
  const double l2_;
  const std::vector<engine::Tensor> tensors_;
  const std::vector<engine::Bucket> buckets_;
  std::vector<float> weights_;
  std::vector<float> gradients_;
  std::vector<std::uint64_t> all_;
};

}  // namespace starling::sparse
