// SPDX-License-Identifier: Apache-2.0
// Hogwild! (Niu, Recht, Re, Wright 2011): threads of one process train one model in shared memory
// without locks. Each reads the few weights that its sample uses, and adds its step to them, weight
// by weight and atomically (SparseTable::Descend): nothing waits, nothing is lost, and since
// samples are sparse threads rarely meet.
//
// In a job (exchange.parameterServer.consistency.hogwild) the weights shared are those that a
// worker has fetched for its unit of work; what they have changed by when the threads are through
// is what it pushes, and servers add it. Between workers it is the asynchronous model.
#pragma once

#include <barrier>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "trainer/workload/workload.h"

namespace starling::workload {

// Confined to one thread, the first of those that work. The others wait in between.
class Hogwild {
 public:
  // `workload` has a sparse table.
  Hogwild(Workload& workload, int threads);
  ~Hogwild();
  Hogwild(const Hogwild&) = delete;
  Hogwild& operator=(const Hogwild&) = delete;

  // A step for each of the samples, each thread its share of them. Then the workload's gradients
  // hold for each of `rows`, which are all that the samples use, what its parameter has changed by.
  Sums Work(std::span<const std::int64_t> samples, std::span<const std::uint64_t> rows,
            double rate);

 private:
  void Help(std::size_t thread);
  void DoShare(std::size_t thread);

  Workload& workload_;
  // Written by the first thread while the others wait at the barrier.
  std::span<const std::int64_t> samples_;
  double rate_ = 0;
  bool ended_ = false;
  std::vector<Sums> sums_;   // one a thread
  std::barrier<> together_;  // before a unit of work, and after it
  std::vector<std::thread> others_;
};

}  // namespace starling::workload
