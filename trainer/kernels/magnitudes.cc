// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/magnitudes.h"

#include <algorithm>
#include <bit>

#include "common/vectorised/vectorised.h"

namespace starling::kernels {
namespace {

// Magnitudes order as the bits of floats without their signs do.
constexpr std::uint32_t kMagnitude = 0x7fffffffU;
constexpr std::size_t kBlock = 32;

STARLING_VECTORISED std::uint32_t LargestLoop(const std::uint32_t* x, std::size_t n) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = x[i] & kMagnitude;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// Few are large, so most blocks are passed over whole.
STARLING_VECTORISED std::size_t AtLeastLoop(const std::uint32_t* x, std::size_t n,
                                            std::uint32_t threshold, std::uint32_t* places) {
  std::size_t found = 0;
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    const std::size_t end = begin + kBlock < n ? begin + kBlock : n;
    std::uint32_t any = 0;
    for (std::size_t i = begin; i < end; ++i) any |= (x[i] & kMagnitude) >= threshold ? 1U : 0U;
    if (any == 0) continue;
    for (std::size_t i = begin; i < end; ++i) {
      places[found] = static_cast<std::uint32_t>(i);
      found += (x[i] & kMagnitude) >= threshold ? 1 : 0;
    }
  }
  return found;
}

const std::uint32_t* BitsOf(std::span<const float> values) {
  return reinterpret_cast<const std::uint32_t*>(values.data());
}

}  // namespace

float LargestMagnitude(std::span<const float> values) {
  return std::bit_cast<float>(LargestLoop(BitsOf(values), values.size()));
}

std::vector<std::uint32_t> AtLeast(std::span<const float> values, float threshold) {
  // At most so many are found at a time, and one more is written.
  constexpr std::size_t kStretch = 1 << 14;
  std::vector<std::uint32_t> places, found(kStretch + 1);
  const auto bits =
      std::max<std::uint32_t>(1, std::bit_cast<std::uint32_t>(threshold) & kMagnitude);
  for (std::size_t begin = 0; begin < values.size(); begin += kStretch) {
    const std::span<const float> some =
        values.subspan(begin, std::min(kStretch, values.size() - begin));
    const std::size_t count = AtLeastLoop(BitsOf(some), some.size(), bits, found.data());
    for (std::size_t i = 0; i < count; ++i) {
      places.push_back(static_cast<std::uint32_t>(begin) + found[i]);
    }
  }
  return places;
}

}  // namespace starling::kernels
