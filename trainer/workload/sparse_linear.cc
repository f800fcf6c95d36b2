// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/sparse_linear.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "trainer/kernels/atomic_math.h"

namespace starling::workload {
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

Sums NoneOf(std::size_t samples) {
  return {{0, static_cast<double>(samples)}, {0, static_cast<double>(samples)}};
}

double LabelOf(const data::SparseDataset& set, std::int64_t sample) {
  return double{set.labels[static_cast<std::size_t>(sample)]};
}

Declaration DeclarationOf(const SparseLoss& loss, const data::SparseDataset& train,
                          const data::SparseDataset* validation, const std::string& data_digest) {
  const auto weights = static_cast<std::int64_t>(train.hashed);
  Declaration declaration;
  declaration.metrics = {"loss", loss.second_metric};
  declaration.tensors = {{"weight", {weights}, 0, weights}};
  declaration.buckets = {{0, weights}};
  declaration.samples = train.size();
  if (validation != nullptr) declaration.validation_samples = validation->size();
  declaration.data_digest = data_digest;
  declaration.numeric_identity = "sparse";
  declaration.model_metadata = {{"format", "pt"}};
  return declaration;
}

std::vector<std::uint64_t> AllOf(const data::SparseDataset& train,
                                 const data::SparseDataset* validation) {
  std::vector<std::uint64_t> all = train.features;
  if (validation != nullptr) {
    all.insert(all.end(), validation->features.begin(), validation->features.end());
  }
  return SortedOnce(std::move(all), train.hashed);
}

}  // namespace

SparseLinear::SparseLinear(SparseLoss loss, Samples train, Samples validation, double l2,
                           const std::string& data_digest)
    : Workload(DeclarationOf(loss, *train, validation.get(), data_digest)),
      loss_(std::move(loss)),
      train_(std::move(train)),
      validation_(std::move(validation)),
      l2_(l2),
      weights_(train_->hashed),
      gradients_(train_->hashed),
      all_(AllOf(*train_, validation_.get())) {}

double SparseLinear::Score(const data::SparseDataset& set, std::int64_t sample) const {
  const std::span<const std::uint64_t> features = set.FeaturesOf(sample);
  const float* values = set.ValuesOf(sample).data();
  const float* weights = weights_.data();
  double score = 0;
  for (const std::uint64_t feature : features) {
    score += double{weights[feature]} * double{*values++};
  }
  return score;
}

void SparseLinear::Count(double score, double label, Sums& sums) const {
  sums[0].sum += loss_.loss(score, label);
  sums[1].sum += loss_.second(score, label);
}

absl::StatusOr<Sums> SparseLinear::Compute(std::span<const std::int64_t> samples,
                                           const Client& client) {
  client.loaded();
  Sums sums = NoneOf(samples.size());
  const double penalty = static_cast<double>(samples.size()) * l2_;
  const float* weights = weights_.data();  // unchecked, for the loops below are all the time
  float* gradients = gradients_.data();
  for (const std::int64_t sample : samples) {
    for (const std::uint64_t feature : train_->FeaturesOf(sample)) {
      gradients[feature] =
          penalty == 0 ? 0 : static_cast<float>(penalty * double{weights[feature]});
    }
  }
  for (const std::int64_t sample : samples) {
    const double score = Score(*train_, sample);
    const double label = LabelOf(*train_, sample);
    Count(score, label, sums);
    const double slope = loss_.slope(score, label);
    const float* values = train_->ValuesOf(sample).data();
    for (const std::uint64_t feature : train_->FeaturesOf(sample)) {
      gradients[feature] += static_cast<float>(slope * double{*values++});
    }
  }
  client.push(0);
  return sums;
}

absl::StatusOr<Sums> SparseLinear::Evaluate(std::int64_t begin, std::int64_t end) {
  Sums sums = NoneOf(static_cast<std::size_t>(end - begin));
  for (std::int64_t sample = begin; sample < end; ++sample) {
    Count(Score(*validation_, sample), LabelOf(*validation_, sample), sums);
  }
  return sums;
}

Sums SparseLinear::Descend(std::span<const std::int64_t> samples, double rate) {
  Sums sums = NoneOf(samples.size());
  std::vector<float> read;
  for (const std::int64_t sample : samples) {
    const std::span<const std::uint64_t> used = train_->FeaturesOf(sample);
    const std::span<const float> values = train_->ValuesOf(sample);
    read.resize(used.size());
    double score = 0;
    for (std::size_t j = 0; j < used.size(); ++j) {
      read[j] = kernels::AtomicLoad(weights_[used[j]]);
      score += double{read[j]} * double{values[j]};
    }
    const double label = LabelOf(*train_, sample);
    Count(score, label, sums);
    const double slope = loss_.slope(score, label);
    for (std::size_t j = 0; j < used.size(); ++j) {
      const double gradient = slope * double{values[j]} + l2_ * double{read[j]};
      kernels::AtomicAdd(static_cast<float>(-rate * gradient), weights_[used[j]]);
    }
  }
  return sums;
}

std::vector<std::uint64_t> SparseLinear::Rows(std::span<const std::int64_t> samples) const {
  std::vector<std::uint64_t> rows;
  for (const std::int64_t sample : samples) {
    const std::span<const std::uint64_t> used = train_->FeaturesOf(sample);
    rows.insert(rows.end(), used.begin(), used.end());
  }
  return SortedOnce(std::move(rows), train_->hashed);
}

std::vector<std::uint64_t> SparseLinear::ValidationRows() const {
  if (validation_ == nullptr) return {};
  return SortedOnce(validation_->features, validation_->hashed);
}

}  // namespace starling::workload
