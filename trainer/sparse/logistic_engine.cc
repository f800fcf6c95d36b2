// SPDX-License-Identifier: Apache-2.0
#include "trainer/sparse/logistic_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/kernels/atomic_math.h"

namespace starling::sparse {
namespace {

void SortOnce(std::vector<std::uint64_t>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

// log(1 + exp(-margin)), also for large margins of either sign.
double LossOf(double margin) {
  return margin > 0 ? std::log1p(std::exp(-margin)) : std::log1p(std::exp(margin)) - margin;
}

void Count(double score, std::int64_t label, engine::BatchSums& sums) {
  sums.loss += LossOf(label == 1 ? score : -score);
  sums.correct += (score > 0) == (label == 1) ? 1 : 0;
}

}  // namespace

LogisticEngine::LogisticEngine(std::shared_ptr<const data::SparseDataset> samples, double l2)
    : samples_(std::move(samples)),
      l2_(l2),
      tensors_{{"weight",
                {static_cast<int64_t>(samples_->hashed)},
                0,
                static_cast<int64_t>(samples_->hashed)}},
      buckets_{{0, static_cast<int64_t>(samples_->hashed)}},
      weights_(samples_->hashed),
      gradients_(samples_->hashed),
      all_(samples_->features.begin(), samples_->features.end()) {
  SortOnce(all_);
}

double LogisticEngine::Score(std::int64_t sample) const {
  const std::span<const std::uint64_t> features = samples_->FeaturesOf(sample);
  const std::span<const float> values = samples_->ValuesOf(sample);
  double score = 0;
  for (std::size_t i = 0; i < features.size(); ++i) {
    score += double{weights_[features[i]]} * double{values[i]};
  }
  return score;
}

absl::StatusOr<engine::BatchSums> LogisticEngine::ComputeGradients(std::span<const float> features,
                                                                   std::span<const int64_t> labels,
                                                                   const OnBucket& on_bucket) {
  engine::BatchSums sums;
  const auto count = static_cast<double>(labels.size());
  for (const float number : features) {
    for (const std::uint64_t feature : samples_->FeaturesOf(static_cast<std::int64_t>(number))) {
      gradients_[feature] = static_cast<float>(count * l2_ * double{weights_[feature]});
    }
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto sample = static_cast<std::int64_t>(features[i]);
    const double score = Score(sample);
    Count(score, labels[i], sums);
    const double slope = 1 / (1 + std::exp(-score)) - static_cast<double>(labels[i]);
    const std::span<const std::uint64_t> used = samples_->FeaturesOf(sample);
    const std::span<const float> values = samples_->ValuesOf(sample);
    for (std::size_t j = 0; j < used.size(); ++j) {
      gradients_[used[j]] += static_cast<float>(slope * double{values[j]});
    }
  }
  on_bucket(0);
  return sums;
}

absl::StatusOr<engine::BatchSums> LogisticEngine::Evaluate(std::span<const float> features,
                                                           std::span<const int64_t> labels) {
  engine::BatchSums sums;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    Count(Score(static_cast<std::int64_t>(features[i])), labels[i], sums);
  }
  return sums;
}

engine::BatchSums LogisticEngine::Descend(std::span<const float> features,
                                          std::span<const int64_t> labels, double rate) {
  engine::BatchSums sums;
  std::vector<float> read;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto sample = static_cast<std::int64_t>(features[i]);
    const std::span<const std::uint64_t> used = samples_->FeaturesOf(sample);
    const std::span<const float> values = samples_->ValuesOf(sample);
    read.resize(used.size());
    double score = 0;
    for (std::size_t j = 0; j < used.size(); ++j) {
      read[j] = kernels::AtomicLoad(weights_[used[j]]);
      score += double{read[j]} * double{values[j]};
    }
    Count(score, labels[i], sums);
    const double slope = 1 / (1 + std::exp(-score)) - static_cast<double>(labels[i]);
    for (std::size_t j = 0; j < used.size(); ++j) {
      const double gradient = slope * double{values[j]} + l2_ * double{read[j]};
      kernels::AtomicAdd(static_cast<float>(-rate * gradient), weights_[used[j]]);
    }
  }
  return sums;
}

std::vector<std::uint64_t> LogisticEngine::Touched(std::span<const float> features) const {
  std::vector<std::uint64_t> touched;
  for (const float number : features) {
    const std::span<const std::uint64_t> used =
        samples_->FeaturesOf(static_cast<std::int64_t>(number));
    touched.insert(touched.end(), used.begin(), used.end());
  }
  SortOnce(touched);
  return touched;
}

}  // namespace starling::sparse
