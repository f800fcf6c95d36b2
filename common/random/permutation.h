// SPDX-License-Identifier: Apache-2.0
// A keyed permutation of [0, n), one element at a time.
//
// The order in which an epoch visits its samples must be the same for every worker, after every
// restart, without anyone keeping or sending a list. A Feistel network (Luby and Rackoff 1988) over
// the next power of two permutes without memory; walking along the cycle until the value is below n
// (Black and Rogaway 2002) makes it a permutation of exactly [0, n).
#pragma once

#include <array>
#include <cstdint>

namespace starling::random {

// Thread-safe: immutable.
class Permutation {
 public:
  // The permutation of [0, size) that belongs to (seed, epoch). `size` >= 1.
  Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size);

  std::uint64_t size() const { return size_; }

  // Where `index` (below size) goes. Constant time and memory.
  std::uint64_t At(std::uint64_t index) const;

 private:
  static constexpr int kRounds = 8;

  std::uint64_t Walk(std::uint64_t value) const;

  std::uint64_t size_;
  int left_bits_;
  int right_bits_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace starling::random
