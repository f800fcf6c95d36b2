// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/hogwild.h"

#include <algorithm>

namespace starling::workload {

Hogwild::Hogwild(Workload& workload, int threads)
    : workload_(workload),
      sums_(static_cast<std::size_t>(std::max(1, threads))),
      together_(static_cast<std::ptrdiff_t>(sums_.size())) {
  for (std::size_t thread = 1; thread < sums_.size(); ++thread) {
    others_.emplace_back([this, thread] { Help(thread); });
  }
}

Hogwild::~Hogwild() {
  ended_ = true;
  together_.arrive_and_wait();
  for (std::thread& other : others_) other.join();
}

Sums Hogwild::Work(std::span<const std::int64_t> samples, std::span<const std::uint64_t> rows,
                   double rate) {
  const std::span<float> parameters = workload_.parameters();
  const std::span<float> changes = workload_.gradients();
  for (const std::uint64_t row : rows) changes[row] = parameters[row];
  samples_ = samples;
  rate_ = rate;
  together_.arrive_and_wait();
  DoShare(0);
  together_.arrive_and_wait();
  for (const std::uint64_t row : rows) changes[row] = parameters[row] - changes[row];
  Sums all;
  for (const Sums& share : sums_) Add(share, all);
  return all;
}

void Hogwild::Help(std::size_t thread) {
  for (;;) {
    together_.arrive_and_wait();
    if (ended_) return;
    DoShare(thread);
    together_.arrive_and_wait();
  }
}

// Consecutive samples, as many as anybody's but for one.
void Hogwild::DoShare(std::size_t thread) {
  const std::size_t begin = samples_.size() * thread / sums_.size();
  const std::size_t end = samples_.size() * (thread + 1) / sums_.size();
  sums_[thread] = workload_.sparse()->Descend(samples_.subspan(begin, end - begin), rate_);
}

}  // namespace starling::workload
