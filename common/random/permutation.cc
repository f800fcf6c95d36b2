// SPDX-License-Identifier: Apache-2.0
#include "common/random/permutation.h"

#include <algorithm>
#include <bit>

#include "common/random/philox.h"

namespace starling::random {
namespace {

// The finaliser of MurmurHash3: every bit of the input moves every bit of the output.
std::uint64_t Mix(std::uint64_t value) {
  value ^= value >> 33;
  value *= 0xFF51AFD7ED558CCD;
  value ^= value >> 33;
  value *= 0xC4CEB9FE1A85EC53;
  value ^= value >> 33;
  return value;
}

}  // namespace

Permutation::Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size)
    : size_(size) {
  const int bits = std::max(2, static_cast<int>(std::bit_width(size - 1)));
  left_bits_ = bits / 2;
  right_bits_ = bits - left_bits_;
  const Philox random(seed, Stream::kSampleOrder, epoch);
  for (std::size_t round = 0; round < keys_.size(); ++round) keys_[round] = random.Bits64(round);
}

std::uint64_t Permutation::At(std::uint64_t index) const {
  if (size_ == 1) return 0;
  // A cycle that starts below size_ returns there: fewer than two rounds are expected.
  do {
    index = Walk(index);
  } while (index >= size_);
  return index;
}

std::uint64_t Permutation::Walk(std::uint64_t value) const {
  const std::uint64_t left_mask = (std::uint64_t{1} << left_bits_) - 1;
  const std::uint64_t right_mask = (std::uint64_t{1} << right_bits_) - 1;
  std::uint64_t left = value >> right_bits_;
  std::uint64_t right = value & right_mask;
  for (int round = 0; round < kRounds; round += 2) {
    left ^= Mix(right ^ keys_[round]) & left_mask;
    right ^= Mix(left ^ keys_[round + 1]) & right_mask;
  }
  return left << right_bits_ | right;
}

}  // namespace starling::random
