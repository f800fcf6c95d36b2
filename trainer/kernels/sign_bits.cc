// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/sign_bits.h"

#include <cstring>

#include "common/status/check.h"
#include "common/vectorised/vectorised.h"

namespace starling::kernels {
namespace {

constexpr std::size_t kLanes = 16;
constexpr std::size_t kWordBits = 32;

// Sums of both sides, and how many are below, in lanes. `n` is a multiple of kLanes.
STARLING_VECTORISED void SumsBySignLoop(const float* x, double* below, double* above,
                                        std::int32_t* count, std::size_t n) {
  // Nothing else can point to these, so they stay in registers.
  double lower[kLanes] = {}, upper[kLanes] = {};
  std::int32_t lowers[kLanes] = {};
  for (std::size_t i = 0; i < n; i += kLanes) {
    // One loop for floats and one for each sum of doubles: compilers vectorise these, and not one
    // loop of all.
    float low[kLanes], high[kLanes];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float value = x[i + lane];
      low[lane] = value < 0 ? value : 0.0F;
      high[lane] = value < 0 ? 0.0F : value;
      lowers[lane] += value < 0 ? 1 : 0;
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) lower[lane] += double{low[lane]};
    for (std::size_t lane = 0; lane < kLanes; ++lane) upper[lane] += double{high[lane]};
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    below[lane] = lower[lane];
    above[lane] = upper[lane];
    count[lane] = lowers[lane];
  }
}

STARLING_VECTORISED void PackLoop(const float* x, std::uint32_t* words, std::size_t count) {
  for (std::size_t word = 0; word < count; ++word) {
    std::uint32_t bits = 0;
    for (std::size_t bit = 0; bit < kWordBits; ++bit) {
      bits |= (x[word * kWordBits + bit] < 0 ? 0U : 1U) << bit;
    }
    words[word] = bits;
  }
}
STARLING_VECTORISED void UnpackLoop(const std::uint32_t* words, float below, float above, float* y,
                                    std::size_t count) {
  for (std::size_t word = 0; word < count; ++word) {
    const std::uint32_t bits = words[word];
    for (std::size_t bit = 0; bit < kWordBits; ++bit) {
      y[word * kWordBits + bit] = (bits >> bit & 1U) != 0 ? above : below;
    }
  }
}

double SumOf(const double (&lanes)[kLanes]) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Words whose bytes may begin anywhere, so many at a time.
constexpr std::size_t kBlockWords = 64;

}  // namespace

SignMeans MeansBySign(std::span<const float> values) {
  // Lanes count to 2^31 each, so blocks of any length fit.
  double below[kLanes] = {}, above[kLanes] = {};
  std::int32_t counts[kLanes] = {};
  const std::size_t whole = values.size() / kLanes * kLanes;
  SumsBySignLoop(values.data(), below, above, counts, whole);
  for (std::size_t i = whole; i < values.size(); ++i) {
    const bool is_below = values[i] < 0;
    (is_below ? below : above)[i - whole] += double{values[i]};
    counts[i - whole] += is_below ? 1 : 0;
  }
  std::int64_t count = 0;
  for (const std::int32_t lane : counts) count += lane;
  const auto rest = static_cast<std::int64_t>(values.size()) - count;
  const auto mean = [](double sum, std::int64_t of) {
    return of == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(of));
  };
  return {mean(SumOf(below), count), mean(SumOf(above), rest)};
}

void PackSigns(std::span<const float> values, std::span<std::byte> bytes) {
  STARLING_CHECK(bytes.size() >= SignWords(values.size()) * sizeof(std::uint32_t),
                 "there is room for every bit");
  const std::size_t whole = values.size() / kWordBits;
  std::uint32_t block[kBlockWords];
  for (std::size_t word = 0; word < whole; word += kBlockWords) {
    const std::size_t count = whole - word < kBlockWords ? whole - word : kBlockWords;
    PackLoop(values.data() + word * kWordBits, block, count);
    std::memcpy(bytes.data() + word * sizeof block[0], block, count * sizeof block[0]);
  }
  if (whole == SignWords(values.size())) return;
  std::uint32_t last = 0;
  for (std::size_t i = whole * kWordBits; i < values.size(); ++i) {
    last |= (values[i] < 0 ? 0U : 1U) << i % kWordBits;
  }
  std::memcpy(bytes.data() + whole * sizeof last, &last, sizeof last);
}

void UnpackSigns(std::span<const std::byte> bytes, const SignMeans& means,
                 std::span<float> values) {
  STARLING_CHECK(bytes.size() >= SignWords(values.size()) * sizeof(std::uint32_t),
                 "there is a bit for every number");
  const std::size_t whole = values.size() / kWordBits;
  std::uint32_t block[kBlockWords];
  for (std::size_t word = 0; word < whole; word += kBlockWords) {
    const std::size_t count = whole - word < kBlockWords ? whole - word : kBlockWords;
    std::memcpy(block, bytes.data() + word * sizeof block[0], count * sizeof block[0]);
    UnpackLoop(block, means.below, means.above, values.data() + word * kWordBits, count);
  }
  if (whole == SignWords(values.size())) return;
  std::uint32_t last = 0;
  std::memcpy(&last, bytes.data() + whole * sizeof last, sizeof last);
  for (std::size_t i = whole * kWordBits; i < values.size(); ++i) {
    values[i] = (last >> i % kWordBits & 1U) != 0 ? means.above : means.below;
  }
}

}  // namespace starling::kernels
