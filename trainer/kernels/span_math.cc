// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/span_math.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/status/check.h"
#include "common/vectorised/vectorised.h"

namespace starling::kernels {
namespace {

void CheckEqual(std::size_t a, std::size_t b) {
  STARLING_CHECK(a == b, "spans of one call have equal lengths");
}

// Adds `lanes` in order.
double AddLanes(const double (&lanes)[kSumLanes]) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// The loops take pointers: versions are chosen per function, and a span's inlined accessors would
// hide the plain loop from the vectoriser in unoptimised builds.
STARLING_VECTORISED void FillLoop(float value, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = value;
}
STARLING_VECTORISED void AddLoop(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
}
STARLING_VECTORISED void AddDoubleLoop(const double* x, double* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
}
STARLING_VECTORISED void SubtractLoop(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] -= x[i];
}
STARLING_VECTORISED void SumOfLoop(const float* x, const float* z, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] + z[i];
}
STARLING_VECTORISED void DifferenceOfLoop(const float* x, const float* z, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] - z[i];
}
STARLING_VECTORISED void ScaleLoop(float a, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] *= a;
}
STARLING_VECTORISED void ClearWhereNonZeroLoop(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] == 0 ? y[i] : 0;
}
STARLING_VECTORISED void AxpyLoop(float a, const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] += a * x[i];
}
STARLING_VECTORISED void MinimumLoop(const std::int64_t* x, std::int64_t* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] < y[i] ? x[i] : y[i];
}
STARLING_VECTORISED void MaximumLoop(const std::int64_t* x, std::int64_t* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] > y[i] ? x[i] : y[i];
}

// `n` is a multiple of kSumLanes.
STARLING_VECTORISED void SumLoop(const float* x, double* lanes, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kSumLanes) {
    for (std::size_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] += double{x[i + lane]};
  }
}
STARLING_VECTORISED void DotLoop(const float* x, const float* y, double* lanes, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kSumLanes) {
    for (std::size_t lane = 0; lane < kSumLanes; ++lane) {
      lanes[lane] += double{x[i + lane]} * double{y[i + lane]};
    }
  }
}

// The top bit is set where the exponent of any element has all its bits set, as that of infinity
// and of NaN has: one more in the exponent then carries into the top bit, and nothing else does.
STARLING_VECTORISED std::uint32_t NotFiniteLoop(const std::uint32_t* x, std::size_t n) {
  constexpr std::uint32_t kExponent = 0x7f800000U;
  constexpr std::uint32_t kOneInExponent = 0x00800000U;
  std::uint32_t carried = 0;
  for (std::size_t i = 0; i < n; ++i) carried |= (x[i] & kExponent) + kOneInExponent;
  return carried;
}

}  // namespace

void Fill(float value, std::span<float> y) { FillLoop(value, y.data(), y.size()); }

void Copy(std::span<const float> x, std::span<float> y) {
  CheckEqual(x.size(), y.size());
  if (!x.empty()) std::memmove(y.data(), x.data(), x.size_bytes());
}

void CopyPastCaches(std::span<const std::byte> x, std::span<std::byte> y) {
  CheckEqual(x.size(), y.size());
  std::size_t done = 0;
#if defined(__x86_64__)
  constexpr std::size_t kLine = 64;
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(y.data()) % kLine;
  if (x.size() >= head + kLine) {
    std::memcpy(y.data(), x.data(), head);
    for (done = head; done + kLine <= x.size(); done += kLine) {
      const auto* from = reinterpret_cast<const __m128i*>(x.data() + done);
      auto* to = reinterpret_cast<__m128i*>(y.data() + done);
      for (int i = 0; i < 4; ++i) _mm_stream_si128(to + i, _mm_loadu_si128(from + i));
    }
    // Such stores are seen in no order otherwise, not even by who has waited for a later one.
    _mm_sfence();
  }
#endif
  if (done < x.size()) std::memcpy(y.data() + done, x.data() + done, x.size() - done);
}

void Add(std::span<const float> x, std::span<float> y) {
  CheckEqual(x.size(), y.size());
  AddLoop(x.data(), y.data(), x.size());
}

void Add(std::span<const double> x, std::span<double> y) {
  CheckEqual(x.size(), y.size());
  AddDoubleLoop(x.data(), y.data(), x.size());
}

void Subtract(std::span<const float> x, std::span<float> y) {
  CheckEqual(x.size(), y.size());
  SubtractLoop(x.data(), y.data(), x.size());
}

void Scale(float a, std::span<float> y) { ScaleLoop(a, y.data(), y.size()); }

void SumOf(std::span<const float> x, std::span<const float> z, std::span<float> y) {
  CheckEqual(x.size(), y.size());
  CheckEqual(z.size(), y.size());
  SumOfLoop(x.data(), z.data(), y.data(), y.size());
}
void DifferenceOf(std::span<const float> x, std::span<const float> z, std::span<float> y) {
  CheckEqual(x.size(), y.size());
  CheckEqual(z.size(), y.size());
  DifferenceOfLoop(x.data(), z.data(), y.data(), y.size());
}

void ClearWhereNonZero(std::span<const float> x, std::span<float> y) {
  CheckEqual(x.size(), y.size());
  ClearWhereNonZeroLoop(x.data(), y.data(), y.size());
}

void Axpy(float a, std::span<const float> x, std::span<float> y) {
  CheckEqual(x.size(), y.size());
  AxpyLoop(a, x.data(), y.data(), x.size());
}

void Minimum(std::span<const std::int64_t> x, std::span<std::int64_t> y) {
  CheckEqual(x.size(), y.size());
  MinimumLoop(x.data(), y.data(), x.size());
}

void Maximum(std::span<const std::int64_t> x, std::span<std::int64_t> y) {
  CheckEqual(x.size(), y.size());
  MaximumLoop(x.data(), y.data(), x.size());
}

double Sum(std::span<const float> x) {
  double lanes[kSumLanes] = {};
  const std::size_t whole = x.size() / kSumLanes * kSumLanes;
  SumLoop(x.data(), lanes, whole);
  for (std::size_t i = whole; i < x.size(); ++i) lanes[i - whole] += double{x[i]};
  return AddLanes(lanes);
}

double SumOfSquares(std::span<const float> x) { return Dot(x, x); }

double Dot(std::span<const float> x, std::span<const float> y) {
  CheckEqual(x.size(), y.size());
  double lanes[kSumLanes] = {};
  const std::size_t whole = x.size() / kSumLanes * kSumLanes;
  DotLoop(x.data(), y.data(), lanes, whole);
  for (std::size_t i = whole; i < x.size(); ++i) lanes[i - whole] += double{x[i]} * double{y[i]};
  return AddLanes(lanes);
}

bool AllFinite(std::span<const float> x) {
  constexpr std::uint32_t kTopBit = 0x80000000U;
  return (NotFiniteLoop(reinterpret_cast<const std::uint32_t*>(x.data()), x.size()) & kTopBit) == 0;
}

}  // namespace starling::kernels
