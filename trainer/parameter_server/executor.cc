// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/executor.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace starling::parameter_server {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

}  // namespace

std::vector<int> ExecutorsOf(const std::vector<ExecutorWork>& shards, const Executors& executors) {
  std::vector<int> executor_of(shards.size(), 0);
  if (executors.count <= 1) return executor_of;
  std::vector<std::size_t> order(shards.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::tuple(shards[b].served, shards[b].bytes, a) <
           std::tuple(shards[a].served, shards[a].bytes, b);
  });
  // Of shards served, then of the others: a copy may be fetched ahead.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> work(
      static_cast<std::size_t>(executors.count));
  for (const std::size_t shard : order) {
    if (shards[shard].bytes < executors.least_bytes) continue;
    const auto least = std::min_element(work.begin() + 1, work.end());
    (shards[shard].served ? least->first : least->second) += shards[shard].bytes;
    executor_of[shard] = static_cast<int>(least - work.begin());
  }
  return executor_of;
}

Executor::Executor(std::function<absl::Duration()> rest)
    : rest_(std::move(rest)), thread_([this] { Run(); }) {}

Executor::~Executor() {
  {
    const sync::MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

bool Executor::PutMessage(std::function<void()>& handle, std::size_t bytes,
                          net::Deadline deadline) {
  const sync::MutexLock lock(mutex_);
  while (bytes_ > kMostBytes) {
    if (deadline.Expired()) return false;
    changed_.WaitFor(mutex_, deadline.Remaining());
  }
  bytes_ += bytes;
  tasks_.push_back({std::exchange(handle, nullptr), bytes, /*message=*/true});
  changed_.NotifyAll();
  return true;
}

void Executor::PutCall(std::function<void()> call) {
  const sync::MutexLock lock(mutex_);
  tasks_.push_back({std::move(call), 0, /*message=*/false});
  changed_.NotifyAll();
}

void Executor::Send(Outgoing outgoing) {
  const sync::MutexLock lock(sent_mutex_);
  sent_.push_back(std::move(outgoing));
}

std::vector<Outgoing> Executor::TakeSent() {
  const sync::MutexLock lock(sent_mutex_);
  return std::exchange(sent_, {});
}

void Executor::Run() {
  while (true) {
    Task task;
    bool stopping = false;
    {
      const sync::MutexLock lock(mutex_);
      if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      stopping = stopping_;
      if (stopping && !task.run) return;
    }
    if (task.run) {
      if (!stopping || !task.message) task.run();
      task.run = nullptr;  // what it holds goes before more is let in
      const sync::MutexLock lock(mutex_);
      const bool full = bytes_ > kMostBytes;
      bytes_ -= task.bytes;
      if (full) changed_.NotifyAll();
      continue;
    }
    const absl::Duration sleep = rest_();
    const sync::MutexLock lock(mutex_);
    if (!tasks_.empty() || stopping_) continue;
    changed_.WaitFor(mutex_, sleep);
  }
}

}  // namespace starling::parameter_server
