// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/hogwild.h"

#include <algorithm>

namespace starling::workload {

namespace {

Declaration DeclarationOf(const Workload& workload) {
  Declaration declaration = workload.declaration();
  declaration.changes = true;
  return declaration;
}

}  // namespace

Hogwild::Hogwild(Workload& workload, int threads)
    : Workload(DeclarationOf(workload)),
      workload_(workload),
      table_(*workload.sparse()),
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

std::vector<std::uint64_t> Hogwild::Rows(std::span<const std::int64_t> samples) const {
  asked_.assign(samples.begin(), samples.end());
  rows_ = table_.Rows(samples);
  return rows_;
}

absl::StatusOr<Sums> Hogwild::Compute(std::span<const std::int64_t> samples, const Client& client) {
  client.loaded();
  if (!std::ranges::equal(samples, asked_)) (void)Rows(samples);
  const Sums sums = Work(samples, rows_, client.rate);
  const auto buckets = static_cast<std::int64_t>(declaration().buckets.size());
  for (std::int64_t bucket = 0; bucket < buckets; ++bucket) client.push(bucket);
  return sums;
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
  sums_[thread] = table_.Descend(samples_.subspan(begin, end - begin), rate_);
}

}  // namespace starling::workload
