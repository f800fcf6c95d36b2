// SPDX-License-Identifier: Apache-2.0
// For tests: a sparse workload whose parameters count. Sample i adds 1 to parameter i, which is its
// own, and 1 to the last one, which all samples share: whole numbers, so that nothing may be lost.
#pragma once

#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/sync/mutex.h"
#include "trainer/kernels/atomic_math.h"
#include "trainer/workload/workload.h"

namespace starling::workload {

// Confined to one thread, but for Descend and threads().
class CountWorkload final : public Workload, public SparseTable {
 public:
  explicit CountWorkload(std::int64_t samples)
      : Workload(DeclarationOf(samples)),
        parameters_(static_cast<std::size_t>(samples + 1)),
        gradients_(parameters_.size()),
        all_(parameters_.size()) {
    std::iota(all_.begin(), all_.end(), 0);
  }

  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradients() override { return gradients_; }
  absl::StatusOr<Sums> Compute(std::span<const std::int64_t> /*samples*/,
                               const Client& /*client*/) override {
    return absl::UnimplementedError("this workload descends only");
  }
  absl::StatusOr<Sums> Evaluate(std::int64_t begin, std::int64_t end) override {
    return Sums{{0, static_cast<double>(end - begin)}};
  }

  SparseTable* sparse() override { return this; }
  std::vector<std::uint64_t> Rows(std::span<const std::int64_t> samples) const override {
    std::set<std::uint64_t> rows(samples.begin(), samples.end());
    rows.insert(all_.back());
    return {rows.begin(), rows.end()};
  }
  std::vector<std::uint64_t> ValidationRows() const override { return {}; }
  std::span<const std::uint64_t> AllRows() const override { return all_; }
  Sums Descend(std::span<const std::int64_t> samples, double /*rate*/) override {
    for (const std::int64_t sample : samples) {
      kernels::AtomicAdd(1, parameters_[static_cast<std::size_t>(sample)]);
      kernels::AtomicAdd(1, parameters_.back());
    }
    const sync::MutexLock lock(mutex_);
    if (!samples.empty()) threads_.insert(std::this_thread::get_id());
    const auto count = static_cast<double>(samples.size());
    return {{count, count}};
  }

  // Those that have worked samples off.
  std::set<std::thread::id> threads() const {
    const sync::MutexLock lock(mutex_);
    return threads_;
  }

 private:
  static Declaration DeclarationOf(std::int64_t samples) {
    Declaration declaration;
    declaration.metrics = {"loss"};
    declaration.tensors = {{"counts", {samples + 1}, 0, samples + 1}};
    declaration.buckets = {{0, samples + 1}};
    declaration.samples = samples;
    return declaration;
  }

  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<std::uint64_t> all_;
  mutable sync::Mutex mutex_;
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::workload
