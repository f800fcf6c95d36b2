// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/quantise.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/status/check.h"
#include "common/vectorised/vectorised.h"
#include "trainer/kernels/magnitudes.h"

namespace starling::kernels {
namespace {

constexpr float kLargest = kLargestInt8;
// Added to a magnitude below 2^22 it leaves no bits behind the point: the addition rounds.
constexpr float kRounder = 0x1.8p23F;

inline float Rounded(float value, float inverse) {
  float level = value * inverse;
  level = level > kLargest ? kLargest : level;
  level = level < -kLargest ? -kLargest : level;
  return level + kRounder - kRounder;
}

// Words are made in blocks, and bytes of the whole block then: compilers vectorise each of these
// loops, and make one of both that is five times slower.
constexpr std::size_t kBlock = 64;
template <typename Byte, typename ToWord>
STARLING_PART_OF_VECTORISED void ToBytes(Byte* y, std::size_t n, ToWord to_word) {
  std::int32_t words[kBlock];
  std::size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    for (std::size_t k = 0; k < kBlock; ++k) words[k] = to_word(i + k);
    for (std::size_t k = 0; k < kBlock; ++k) y[i + k] = static_cast<Byte>(words[k]);
  }
  for (; i < n; ++i) y[i] = static_cast<Byte>(to_word(i));
}

STARLING_VECTORISED void Int8Loop(const float* x, float inverse, std::int8_t* y, std::size_t n) {
  ToBytes(
      y, n, [=](std::size_t i) __attribute__((always_inline)) {
        return static_cast<std::int32_t>(Rounded(x[i], inverse));
      });
}
STARLING_VECTORISED void FromInt8Loop(const std::int8_t* x, float scale, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]) * scale;
}

// Returns the least level.
STARLING_VECTORISED std::int32_t AddInt8Loop(const std::int8_t* x, std::int32_t* y, std::size_t n) {
  std::int32_t least = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t level = x[i];
    least = level < least ? level : least;
    y[i] += level;
  }
  return least;
}

constexpr std::size_t kLanes = 16;
// By how much more one scale loses than another that clips nothing, in squares of the other scale,
// so that no square is too large or too small. `n` is a multiple of kLanes.
STARLING_VECTORISED void ErrorBeyondLoop(const float* x, float inverse, float ratio,
                                         float other_inverse, double* lanes, std::size_t n) {
  constexpr std::size_t kStretch = 64 * kLanes;  // as many are added up as floats
  double sums[kLanes] = {};
  for (std::size_t begin = 0; begin < n; begin += kStretch) {
    const std::size_t end = begin + kStretch < n ? begin + kStretch : n;
    float some[kLanes] = {};
    for (std::size_t i = begin; i < end; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const float value = x[i + lane];
        const float lost = (value * inverse - Rounded(value, inverse)) * ratio;
        const float other = value * other_inverse - Rounded(value, other_inverse);
        some[lane] += lost * lost - other * other;
      }
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += double{some[lane]};
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = sums[lane];
}

// Mantissas from which the logarithm's next step is the nearest: 2^((step + 1/2) / 8) as the bits
// behind the point.
constexpr std::uint32_t kHalfSteps[kLogSteps] = {0x05aac3, 0x11c3d3, 0x1ef532, 0x2d583f,
                                                 0x3d08a4, 0x4e248c, 0x60ccdf, 0x75257d};
constexpr std::int32_t kZeroCode = 127;

// How many of them it reaches: each is the sign of a difference, for compilers make branches of
// comparisons.
inline std::int32_t StepsOf(std::uint32_t mantissa) {
  std::uint32_t steps = 0;
  for (const std::uint32_t half : kHalfSteps) steps += (half - 1 - mantissa) >> 31;
  return static_cast<std::int32_t>(steps);
}

STARLING_VECTORISED void LogLoop(const std::uint32_t* x, std::int32_t top, std::uint8_t* y,
                                 std::size_t n) {
  ToBytes(
      y, n, [=](std::size_t i) __attribute__((always_inline)) {
        const std::uint32_t mantissa = x[i] & 0x7fffffU;
        const auto exponent = static_cast<std::int32_t>(x[i] >> 23 & 0xffU);
        std::int32_t code = top - exponent * kLogSteps - StepsOf(mantissa);
        code = code < 0 ? 0 : code;
        code = code > kZeroCode ? kZeroCode : code;
        code = exponent == 0 ? kZeroCode : code;
        return code | static_cast<std::int32_t>(x[i] >> 31 << 7);
      });
}

struct Beyond {
  double count[kLanes] = {}, sum[kLanes] = {};
};
// Those of `n` magnitudes, a multiple of kLanes, that are above `clip`.
STARLING_VECTORISED void BeyondLoop(const float* x, double clip, Beyond& beyond, std::size_t n) {
  Beyond mine;  // stays in registers
  for (std::size_t i = 0; i < n; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double magnitude{x[i + lane]};
      mine.count[lane] += magnitude > clip ? 1 : 0;
      mine.sum[lane] += magnitude > clip ? magnitude : 0;
    }
  }
  beyond = mine;
}

// Where to clip `values`, whose largest magnitude is `largest`.
float BestClip(std::span<const float> values, float largest) {
  constexpr std::size_t kSample = 4096;
  constexpr int kIterations = 8;
  // The squared error of rounding to steps of c / 127 is a twelfth of the step's square.
  constexpr double kRounding = 1.0 / (12 * kLargestInt8 * kLargestInt8);
  float sample[2 * kSample];  // the last lanes are 0, which is beyond nothing
  std::size_t count = 0;
  double clip = 0;
  const std::size_t stride = std::max<std::size_t>(1, values.size() / kSample);
  for (std::size_t i = 0; i < values.size(); i += stride, ++count) {
    sample[count] = std::abs(values[i]);
    clip += double{sample[count]};
  }
  const auto total = static_cast<double>(count);
  for (; count % kLanes != 0; ++count) sample[count] = 0;
  clip *= 4 / total;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    Beyond lanes;
    BeyondLoop(sample, clip, lanes, count);
    double beyond = 0, sum = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      beyond += lanes.count[lane];
      sum += lanes.sum[lane];
    }
    if (beyond == 0) break;
    clip = sum / (kRounding * (total - beyond) + beyond);
  }
  return std::min(largest, static_cast<float>(clip));
}

// Whether clipping at 127 of `scale` does, than a larger scale that clips nothing.
bool LosesLess(std::span<const float> values, float scale, float other) {
  double lanes[kLanes] = {};
  const std::size_t rounded = values.size() / kLanes * kLanes;
  const float inverse = 1 / scale, ratio = scale / other, other_inverse = 1 / other;
  ErrorBeyondLoop(values.data(), inverse, ratio, other_inverse, lanes, rounded);
  float last[kLanes] = {};
  std::ranges::copy(values.subspan(rounded), last);
  double last_lanes[kLanes] = {};
  ErrorBeyondLoop(last, inverse, ratio, other_inverse, last_lanes, kLanes);
  double beyond = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) beyond += lanes[lane] + last_lanes[lane];
  return beyond < 0;
}

}  // namespace

void QuantiseInt8(std::span<const float> values, float scale, std::span<std::int8_t> levels) {
  STARLING_CHECK(values.size() == levels.size(), "spans of one call have equal lengths");
  Int8Loop(values.data(), 1 / scale, levels.data(), values.size());
}

void DequantiseInt8(std::span<const std::int8_t> levels, float scale, std::span<float> values) {
  STARLING_CHECK(values.size() == levels.size(), "spans of one call have equal lengths");
  FromInt8Loop(levels.data(), scale, values.data(), values.size());
}

bool AddInt8(std::span<const std::int8_t> levels, std::span<std::int32_t> sums) {
  STARLING_CHECK(levels.size() == sums.size(), "spans of one call have equal lengths");
  return AddInt8Loop(levels.data(), sums.data(), levels.size()) >= -kLargestInt8;
}

float Int8Scale(std::span<const float> values) {
  const float largest = LargestMagnitude(values);
  const float whole = largest / kLargestInt8;
  const float clipped = BestClip(values, largest) / kLargestInt8;
  if (clipped < FLT_MIN) return whole < FLT_MIN ? 0 : whole;
  if (clipped >= whole) return whole;
  return LosesLess(values, clipped, whole) ? clipped : whole;
}

void QuantiseLog(std::span<const float> values, int exponent, std::span<std::uint8_t> codes) {
  STARLING_CHECK(values.size() == codes.size(), "spans of one call have equal lengths");
  constexpr int kBias = 127;
  LogLoop(reinterpret_cast<const std::uint32_t*>(values.data()), (exponent + kBias) * kLogSteps,
          codes.data(), values.size());
}

}  // namespace starling::kernels
