// SPDX-License-Identifier: Apache-2.0
#include "common/random/philox.h"

#include <cmath>
#include <numbers>

namespace starling::random {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;  // square root of 3, less 1
constexpr int kRounds = 10;
constexpr int kStreamShift = 56;  // leaves 2^56 substreams to each stream

constexpr std::uint32_t Low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
constexpr std::uint32_t High(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
constexpr std::uint64_t Join(std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}
constexpr double ToUnit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace

Block Philox4x32(const Block& counter, const std::array<std::uint32_t, 2>& key) {
  Block block = counter;
  std::uint32_t key0 = key[0];
  std::uint32_t key1 = key[1];
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * block[0];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * block[2];
    block = {High(product1) ^ block[1] ^ key0, Low(product1), High(product0) ^ block[3] ^ key1,
             Low(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return block;
}

Philox::Philox(std::uint64_t seed, Stream stream, std::uint64_t substream)
    : key_{Low(seed), High(seed)},
      high_(static_cast<std::uint64_t>(stream) << kStreamShift ^ substream) {}

Block Philox::At(std::uint64_t counter) const {
  return Philox4x32({Low(counter), High(counter), Low(high_), High(high_)}, key_);
}

std::uint64_t Philox::Bits64(std::uint64_t counter) const {
  const Block block = At(counter);
  return Join(block[0], block[1]);
}

double Philox::Uniform(std::uint64_t counter) const { return ToUnit(Bits64(counter)); }

std::uint64_t Philox::Below(std::uint64_t counter, std::uint64_t bound) const {
  using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{Bits64(counter)} * bound >> 64);
}

double Philox::Normal(std::uint64_t counter) const {
  const Block block = At(counter);
  const double radius = std::sqrt(-2.0 * std::log1p(-ToUnit(Join(block[0], block[1]))));
  return radius * std::cos(2.0 * std::numbers::pi * ToUnit(Join(block[2], block[3])));
}

}  // namespace starling::random
