// SPDX-License-Identifier: Apache-2.0
// For tests: logistic regression in plain loops, so that the whole worker runs without libtorch;
// where numbers are wanted, linear regression.
//
// Two parameters (weight, bias), each a bucket of its own. Like the real one it starts from the
// seed, sums over samples, and gives equal bits for equal inputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/random/philox.h"
#include "trainer/engine/engine.h"

namespace starling::worker {

// Confined to one thread.
class TinyEngine final : public engine::Engine {
 public:
  TinyEngine(int64_t inputs, int64_t classes, uint64_t seed)
      : inputs_(inputs),
        classes_(classes),
        tensors_{{"bias", {classes}, 0, classes},
                 {"weight", {classes, inputs}, classes, classes * inputs}},
        buckets_{{0, classes}, {classes, classes + classes * inputs}},
        parameters_(static_cast<size_t>(classes + classes * inputs)),
        gradients_(parameters_.size()) {
    const random::Philox source(seed, random::Stream::kParameters);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i] = static_cast<float>(source.Uniform(i) - 0.5);
    }
  }

  std::span<const engine::Tensor> tensors() const override { return tensors_; }
  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradients() override { return gradients_; }
  std::span<const engine::Bucket> buckets() const override { return buckets_; }

  absl::StatusOr<engine::BatchSums> ComputeGradients(std::span<const float> features,
                                                     std::span<const int64_t> labels,
                                                     const OnBucket& on_bucket) override {
    Begin(features);
    engine::BatchSums sums;
    for (size_t i = 0; i < labels.size(); ++i) Visit(features, labels, i, true, sums);
    on_bucket(0);
    on_bucket(1);
    return sums;
  }

  absl::StatusOr<engine::BatchSums> FitNumbers(std::span<const float> features,
                                               std::span<const float> wanted,
                                               const OnBucket& on_bucket) override {
    Begin(features);
    const engine::BatchSums sums = VisitNumbers(features, wanted, true);
    on_bucket(0);
    on_bucket(1);
    return sums;
  }

  absl::StatusOr<engine::BatchSums> EvaluateNumbers(std::span<const float> features,
                                                    std::span<const float> wanted) override {
    return VisitNumbers(features, wanted, false);
  }

  void KeepFactors() override { keeps_factors_ = true; }
  std::optional<engine::Factors> FactorsOf(size_t index) const override {
    if (!keeps_factors_ || index != 1) return std::nullopt;
    return engine::Factors{errors_, activations_};
  }

  absl::StatusOr<engine::BatchSums> Evaluate(std::span<const float> features,
                                             std::span<const int64_t> labels) override {
    engine::BatchSums sums;
    for (size_t i = 0; i < labels.size(); ++i) Visit(features, labels, i, false, sums);
    return sums;
  }

 private:
  void Begin(std::span<const float> features) {
    std::ranges::fill(gradients_, 0.0F);
    errors_.clear();
    activations_.assign(features.begin(), features.end());
  }

  std::vector<float> OutputsOf(std::span<const float> x) const {
    const auto classes = static_cast<size_t>(classes_);
    std::vector<float> p(classes);
    for (size_t c = 0; c < classes; ++c) {
      p[c] = parameters_[c];
      for (size_t k = 0; k < x.size(); ++k) p[c] += parameters_[classes + c * x.size() + k] * x[k];
    }
    return p;
  }

  // What a sample `x` adds to the gradients by the errors of its outputs.
  void Learn(std::span<const float> x, std::span<const float> errors) {
    errors_.insert(errors_.end(), errors.begin(), errors.end());
    for (size_t c = 0; c < errors.size(); ++c) {
      gradients_[c] += errors[c];
      for (size_t k = 0; k < x.size(); ++k) {
        gradients_[errors.size() + c * x.size() + k] += errors[c] * x[k];
      }
    }
  }

  // The loss is the mean of the squares of a sample.
  engine::BatchSums VisitNumbers(std::span<const float> features, std::span<const float> wanted,
                                 bool gradients) {
    const auto inputs = static_cast<size_t>(inputs_);
    const auto outputs = static_cast<size_t>(classes_);
    engine::BatchSums sums;
    sums.squares.resize(outputs);
    for (size_t i = 0; i * outputs < wanted.size(); ++i) {
      const std::span<const float> x = features.subspan(i * inputs, inputs);
      std::vector<float> errors = OutputsOf(x);
      for (size_t c = 0; c < outputs; ++c) {
        const float off = errors[c] - wanted[i * outputs + c];
        sums.squares[c] += double{off} * off;
        sums.loss += double{off} * off / static_cast<double>(outputs);
        errors[c] = 2 * off / static_cast<float>(outputs);
      }
      if (gradients) Learn(x, errors);
    }
    return sums;
  }

  void Visit(std::span<const float> features, std::span<const int64_t> labels, size_t i,
             bool gradients, engine::BatchSums& sums) {
    const auto inputs = static_cast<size_t>(inputs_);
    const std::span<const float> x = features.subspan(i * inputs, inputs);
    std::vector<float> p = OutputsOf(x);
    const auto label = static_cast<size_t>(labels[i]);
    if (std::ranges::max_element(p) - p.begin() == labels[i]) ++sums.correct;
    if (std::ranges::count_if(p, [&](float score) { return score > p[label]; }) < 5) ++sums.in_top;
    const float top = std::ranges::max(p);
    float total = 0;
    for (float& value : p) total += value = std::exp(value - top);
    for (float& value : p) value /= total;
    sums.loss -= std::log(static_cast<double>(p[label]));
    if (!gradients) return;
    p[label] -= 1;
    Learn(x, p);
  }

  const int64_t inputs_;
  const int64_t classes_;
  const std::vector<engine::Tensor> tensors_;
  const std::vector<engine::Bucket> buckets_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  bool keeps_factors_ = false;
  std::vector<float> errors_;
  std::vector<float> activations_;
};

}  // namespace starling::worker
