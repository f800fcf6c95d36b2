// SPDX-License-Identifier: Apache-2.0
#include "trainer/sparse/logistic_engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "trainer/kernels/atomic_math.h"

namespace starling::sparse {
namespace {

// `numbers`, all below `end`, ascending and each once.
std::vector<std::uint64_t> SortedOnce(std::vector<std::uint64_t> numbers, std::uint64_t end) {
  constexpr std::uint64_t kBits = 64;
  if (end / kBits > 4 * numbers.size()) {  // few among very many
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    return numbers;
  }
  std::vector<std::uint64_t> words(end / kBits + 1);
  for (const std::uint64_t number : numbers) words[number / kBits] |= 1ULL << number % kBits;
  numbers.clear();
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (std::uint64_t left = words[i]; left != 0; left &= left - 1) {
      numbers.push_back(i * kBits + static_cast<std::uint64_t>(std::countr_zero(left)));
    }
  }
  return numbers;
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
      all_(SortedOnce(samples_->features, samples_->hashed)) {}

double LogisticEngine::Score(std::int64_t sample) const {
  const std::span<const std::uint64_t> features = samples_->FeaturesOf(sample);
  const float* values = samples_->ValuesOf(sample).data();
  const float* weights = weights_.data();
  double score = 0;
  for (const std::uint64_t feature : features) {
    score += double{weights[feature]} * double{*values++};
  }
  return score;
}

absl::StatusOr<engine::BatchSums> LogisticEngine::ComputeGradients(std::span<const float> features,
                                                                   std::span<const int64_t> labels,
                                                                   const OnBucket& on_bucket) {
  engine::BatchSums sums;
  const double penalty = static_cast<double>(labels.size()) * l2_;
  const float* weights = weights_.data();  // unchecked, for the loops below are all the time
  float* gradients = gradients_.data();
  for (const float number : features) {
    for (const std::uint64_t feature : samples_->FeaturesOf(static_cast<std::int64_t>(number))) {
      gradients[feature] =
          penalty == 0 ? 0 : static_cast<float>(penalty * double{weights[feature]});
    }
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto sample = static_cast<std::int64_t>(features[i]);
    const double score = Score(sample);
    Count(score, labels[i], sums);
    const double slope = 1 / (1 + std::exp(-score)) - static_cast<double>(labels[i]);
    const float* values = samples_->ValuesOf(sample).data();
    for (const std::uint64_t feature : samples_->FeaturesOf(sample)) {
      gradients[feature] += static_cast<float>(slope * double{*values++});
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
  return SortedOnce(std::move(touched), samples_->hashed);
}

}  // namespace starling::sparse
