// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/rounding.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "common/status/check.h"
#include "common/vectorised/vectorised.h"

namespace starling::kernels {
namespace {

constexpr std::uint32_t kMagnitudeBits = 0x7fffffffU;
constexpr std::uint32_t kInfinityBits = 0x7f800000U;

// A magnitude's bits with the last `low` of them rounded away.
inline std::uint32_t WithoutLow(std::uint32_t bits, unsigned low) {
  const std::uint32_t half = (1U << (low - 1)) - 1 + (bits >> low & 1U);
  return (bits + half) >> low << low;
}

STARLING_VECTORISED void Float16Loop(std::uint32_t* x, std::size_t n) {
  constexpr std::uint32_t kSmallestNormal = 0x38800000U;  // 2^-14
  constexpr std::uint32_t kBeyond = 0x47800000U;          // 2^16
  // Numbers of one half and more have no bits below 2^-24.
  constexpr float kHalf = 0.5F;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = x[i] & kMagnitudeBits;
    std::uint32_t rounded = WithoutLow(magnitude, 13);
    rounded = rounded >= kBeyond ? kInfinityBits : rounded;
    const auto small =
        std::bit_cast<std::uint32_t>((std::bit_cast<float>(magnitude) + kHalf) - kHalf);
    rounded = magnitude < kSmallestNormal ? small : rounded;
    rounded = magnitude > kInfinityBits ? magnitude : rounded;  // no number
    x[i] = rounded | (x[i] & ~kMagnitudeBits);
  }
}

STARLING_VECTORISED void Bfloat16Loop(std::uint32_t* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = x[i] & kMagnitudeBits;
    const std::uint32_t rounded = magnitude > kInfinityBits ? magnitude : WithoutLow(magnitude, 16);
    x[i] = rounded | (x[i] & ~kMagnitudeBits);
  }
}

inline float Within(float value, float lowest, float highest) {
  value = value < lowest ? lowest : value;
  return value > highest ? highest : value;
}

STARLING_VECTORISED void GridLoop(float* x, float step, float inverse, float lowest, float highest,
                                  std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = Within(std::nearbyint(x[i] * inverse) * step, lowest, highest);
  }
}

STARLING_VECTORISED void DrawnGridLoop(float* x, const std::uint32_t* draws, float step,
                                       float inverse, float lowest, float highest, std::size_t n) {
  constexpr float kDraw = 1.0F / (1 << 24);
  for (std::size_t i = 0; i < n; ++i) {
    const float multiple = x[i] * inverse;
    const float below = std::floor(multiple);
    const float draw = static_cast<float>(static_cast<std::int32_t>(draws[i] >> 8)) * kDraw;
    const float rounded = below + (multiple - below > draw ? 1.0F : 0.0F);
    x[i] = Within(rounded * step, lowest, highest);
  }
}

}  // namespace

void RoundToGrid(const FixedPointGrid& grid, std::span<float> values) {
  GridLoop(values.data(), grid.step, 1 / grid.step, grid.lowest, grid.highest, values.size());
}

void RoundToGridByDraws(const FixedPointGrid& grid, std::span<const std::uint32_t> draws,
                        std::span<float> values) {
  STARLING_CHECK(values.size() == draws.size(), "each number has a draw");
  DrawnGridLoop(values.data(), draws.data(), grid.step, 1 / grid.step, grid.lowest, grid.highest,
                values.size());
}

void RoundToFloat16(std::span<float> values) {
  Float16Loop(reinterpret_cast<std::uint32_t*>(values.data()), values.size());
}

void RoundToBfloat16(std::span<float> values) {
  Bfloat16Loop(reinterpret_cast<std::uint32_t*>(values.data()), values.size());
}

}  // namespace starling::kernels
