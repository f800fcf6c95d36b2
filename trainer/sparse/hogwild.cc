// SPDX-License-Identifier: Apache-2.0
#include "trainer/sparse/hogwild.h"

#include <algorithm>

namespace starling::sparse {

Hogwild::Hogwild(engine::SparseEngine& engine, int threads)
    : engine_(engine),
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

engine::BatchSums Hogwild::Work(std::span<const float> features,
                                std::span<const std::int64_t> labels,
                                std::span<const std::uint64_t> rows, double rate) {
  const std::span<float> parameters = engine_.parameters();
  const std::span<float> changes = engine_.gradients();
  for (const std::uint64_t row : rows) changes[row] = parameters[row];
  features_ = features;
  labels_ = labels;
  rate_ = rate;
  together_.arrive_and_wait();
  DoShare(0);
  together_.arrive_and_wait();
  for (const std::uint64_t row : rows) changes[row] = parameters[row] - changes[row];
  engine::BatchSums all;
  for (const engine::BatchSums& share : sums_) {
    all.loss += share.loss;
    all.correct += share.correct;
  }
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
  const std::size_t begin = labels_.size() * thread / sums_.size();
  const std::size_t end = labels_.size() * (thread + 1) / sums_.size();
  sums_[thread] = engine_.Descend(features_.subspan(begin, end - begin),
                                  labels_.subspan(begin, end - begin), rate_);
}

}  // namespace starling::sparse
