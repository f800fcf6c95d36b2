// SPDX-License-Identifier: Apache-2.0
// A linear score of sparse samples, and a loss of it: its table is one weight for each hashed
// feature. Gradients cost as much as the batch has features, however many weights there are. To add
// another loss: a SparseLoss, and a workload that hands it over.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/sparse_dataset.h"
#include "trainer/workload/workload.h"

namespace starling::workload {

// Of one sample, whose score is the sum of its features' weights times their values.
struct SparseLoss {
  std::string second_metric;
  double (*loss)(double score, double label);
  double (*slope)(double score, double label);  // the derivative of the loss in the score
  double (*second)(double score, double label);
};

// Confined to one thread, but for Descend.
class SparseLinear : public Workload, public SparseTable {
 public:
  using Samples = std::shared_ptr<const data::SparseDataset>;
  // `validation` may be null. `l2`: the penalty l2 / 2 |w|^2 of a sample's loss, over the weights
  // that a batch uses, or in Descend, that the sample uses.
  SparseLinear(SparseLoss loss, Samples train, Samples validation, double l2,
               const std::string& data_digest);

  std::span<float> parameters() override { return weights_; }
  std::span<float> gradients() override { return gradients_; }
  absl::StatusOr<Sums> Compute(std::span<const std::int64_t> samples,
                               const Client& client) override;
  absl::StatusOr<Sums> Evaluate(std::int64_t begin, std::int64_t end) override;

  SparseTable* sparse() override { return this; }
  std::vector<std::uint64_t> Rows(std::span<const std::int64_t> samples) const override;
  std::vector<std::uint64_t> ValidationRows() const override;
  std::span<const std::uint64_t> AllRows() const override { return all_; }
  Sums Descend(std::span<const std::int64_t> samples, double rate) override;

 private:
  double Score(const data::SparseDataset& set, std::int64_t sample) const;
  // Adds a sample's metrics.
  void Count(double score, double label, Sums& sums) const;

  const SparseLoss loss_;
  const Samples train_;
  const Samples validation_;
  const double l2_;
  std::vector<float> weights_;
  std::vector<float> gradients_;
  std::vector<std::uint64_t> all_;
};

}  // namespace starling::workload
