// SPDX-License-Identifier: Apache-2.0
// Hogwild! (Niu, Recht, Re, Wright 2011): threads of one process train one model in shared memory
// without locks. Each reads the few weights that its sample uses, and adds its step to them, weight
// by weight and atomically (SparseTable::Descend): nothing waits, nothing is lost, and since
// samples are sparse threads rarely meet.
//
// In a job (update.hogwild) the weights shared are those that a worker has fetched for its unit of
// work; what they have changed by when the threads are through is what it pushes, and servers add
// it. Between workers it is the asynchronous model. To the loop it is a workload around another.
#pragma once

#include <barrier>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "trainer/workload/workload.h"

namespace starling::workload {

// Confined to one thread, the first of those that work. The others wait in between.
class Hogwild final : public Workload, public SparseTable {
 public:
  // `workload` has a sparse table, and outlives this.
  Hogwild(Workload& workload, int threads);
  ~Hogwild() override;

  std::span<float> parameters() override { return workload_.parameters(); }
  std::span<float> gradients() override { return workload_.gradients(); }
  // Work, with the client's rate.
  absl::StatusOr<Sums> Compute(std::span<const std::int64_t> samples,
                               const Client& client) override;
  absl::StatusOr<Sums> Evaluate(std::int64_t begin, std::int64_t end) override {
    return workload_.Evaluate(begin, end);
  }
  SparseTable* sparse() override { return this; }
  std::vector<std::uint64_t> Rows(std::span<const std::int64_t> samples) const override;
  std::vector<std::uint64_t> ValidationRows() const override { return table_.ValidationRows(); }
  std::span<const std::uint64_t> AllRows() const override { return table_.AllRows(); }
  Sums Descend(std::span<const std::int64_t> samples, double rate) override {
    return table_.Descend(samples, rate);
  }

  // A step for each of the samples, each thread its share of them. Then the workload's gradients
  // hold for each of `rows`, which are all that the samples use, what its parameter has changed by.
  Sums Work(std::span<const std::int64_t> samples, std::span<const std::uint64_t> rows,
            double rate);

 private:
  void Help(std::size_t thread);
  void DoShare(std::size_t thread);

  Workload& workload_;
  SparseTable& table_;
  // Of the newest call of Rows: whoever brings the parameters of a unit of work has just asked.
  mutable std::vector<std::int64_t> asked_;
  mutable std::vector<std::uint64_t> rows_;
  // Written by the first thread while the others wait at the barrier.
  std::span<const std::int64_t> samples_;
  double rate_ = 0;
  bool ended_ = false;
  std::vector<Sums> sums_;   // one a thread
  std::barrier<> together_;  // before a unit of work, and after it
  std::vector<std::thread> others_;
};

}  // namespace starling::workload
