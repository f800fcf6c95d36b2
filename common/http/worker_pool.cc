// SPDX-License-Identifier: Apache-2.0
#include "common/http/worker_pool.h"

#include <utility>

namespace starling::http {

WorkerPool::WorkerPool(int threads, std::size_t queue) : limit_(queue) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkerPool::~WorkerPool() {
  std::deque<std::function<void()>> dropped;
  {
    sync::MutexLock lock(mutex_);
    ending_ = true;
    dropped.swap(tasks_);
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::Add(std::function<void()> task) {
  sync::MutexLock lock(mutex_);
  if (ending_ || tasks_.size() >= limit_) return false;
  tasks_.push_back(std::move(task));
  changed_.NotifyOne();
  return true;
}

void WorkerPool::Run() {
  while (true) {
    std::function<void()> task;
    {
      sync::MutexLock lock(mutex_);
      while (tasks_.empty() && !ending_) changed_.Wait(mutex_);
      if (ending_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace starling::http
