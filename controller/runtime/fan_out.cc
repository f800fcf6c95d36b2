// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/fan_out.h"

#include <algorithm>
#include <thread>

namespace starling::runtime {
namespace {

// Of a batch of two, one thread would save the wait for one answer, and take as much time of the
// processor as the request itself: most jobs are that small.
constexpr std::size_t kWorthThreads = 3;

}  // namespace

std::vector<absl::Status> FanOut(std::size_t count, std::size_t width,
                                 const std::function<absl::Status(std::size_t)>& task,
                                 const std::function<bool(const absl::Status&)>& stops) {
  std::vector<absl::Status> results;
  const auto ends = [&](const absl::Status& status) {
    return stops ? stops(status) : !status.ok();
  };
  for (std::size_t batch = 1; results.size() < count; batch = std::min(batch * 2, width)) {
    const std::size_t first = results.size();
    const std::size_t size = std::min(std::max<std::size_t>(batch, 1), count - first);
    results.resize(first + size);
    std::vector<std::thread> threads;
    for (std::size_t i = first + 1; size >= kWorthThreads && i < first + size; ++i) {
      threads.emplace_back([&results, &task, i] { results[i] = task(i); });
    }
    const std::size_t own = first + size - threads.size();
    for (std::size_t i = first; i < own; ++i) results[i] = task(i);
    for (std::thread& thread : threads) thread.join();
    if (std::any_of(results.begin() + static_cast<std::ptrdiff_t>(first), results.end(), ends)) {
      break;
    }
  }
  return results;
}

}  // namespace starling::runtime
