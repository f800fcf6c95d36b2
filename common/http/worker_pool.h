// SPDX-License-Identifier: Apache-2.0
// A few threads and a queue of bounded length for what may take a while.
//
// Internal to this folder.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "common/sync/mutex.h"

namespace starling::http {

// Thread-safe.
class WorkerPool {
 public:
  WorkerPool(int threads, std::size_t queue);
  // Waits for what has begun; what waits is dropped.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False: the queue is full.
  bool Add(std::function<void()> task);

 private:
  void Run();

  const std::size_t limit_;
  sync::Mutex mutex_;
  sync::Condition changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace starling::http
