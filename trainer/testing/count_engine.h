// SPDX-License-Identifier: Apache-2.0
// For tests: a sparse engine whose parameters count. Sample i adds 1 to parameter i, which is its
// own, and 1 to the last one, which all samples share: whole numbers, so that nothing may be lost.
#pragma once

#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/sync/mutex.h"
#include "trainer/engine/sparse_engine.h"
#include "trainer/kernels/atomic_math.h"

namespace starling::sparse {

// Confined to one thread, but for Descend and threads().
class CountEngine final : public engine::SparseEngine {
 public:
  explicit CountEngine(std::int64_t samples)
      : size_(samples + 1),
        tensors_{{"counts", {size_}, 0, size_}},
        buckets_{{0, size_}},
        parameters_(static_cast<std::size_t>(size_)),
        gradients_(parameters_.size()),
        all_(parameters_.size()) {
    std::iota(all_.begin(), all_.end(), 0);
  }

  std::span<const engine::Tensor> tensors() const override { return tensors_; }
  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradients() override { return gradients_; }
  std::span<const engine::Bucket> buckets() const override { return buckets_; }
  absl::StatusOr<engine::BatchSums> ComputeGradients(std::span<const float> /*features*/,
                                                     std::span<const std::int64_t> /*labels*/,
                                                     const OnBucket& /*on_bucket*/) override {
    return absl::UnimplementedError("this engine descends only");
  }
  absl::StatusOr<engine::BatchSums> Evaluate(std::span<const float> /*features*/,
                                             std::span<const std::int64_t> labels) override {
    return engine::BatchSums{.loss = 0, .correct = static_cast<std::int64_t>(labels.size())};
  }
  std::vector<std::uint64_t> Touched(std::span<const float> features) const override {
    std::set<std::uint64_t> touched(features.begin(), features.end());
    touched.insert(all_.back());
    return {touched.begin(), touched.end()};
  }
  std::span<const std::uint64_t> AllTouched() const override { return all_; }
  engine::BatchSums Descend(std::span<const float> features, std::span<const std::int64_t> labels,
                            double /*rate*/) override {
    for (const float sample : features) {
      kernels::AtomicAdd(1, parameters_[static_cast<std::size_t>(sample)]);
      kernels::AtomicAdd(1, parameters_.back());
    }
    const sync::MutexLock lock(mutex_);
    if (!features.empty()) threads_.insert(std::this_thread::get_id());
    return {.loss = static_cast<double>(labels.size()), .correct = 0};
  }

  // Those that have worked samples off.
  std::set<std::thread::id> threads() const {
    const sync::MutexLock lock(mutex_);
    return threads_;
  }

 private:
  const std::int64_t size_;
  const std::vector<engine::Tensor> tensors_;
  const std::vector<engine::Bucket> buckets_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<std::uint64_t> all_;
  mutable sync::Mutex mutex_;
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::sparse
