// SPDX-License-Identifier: Apache-2.0
// Arithmetic on spans of numbers: what reductions, optimizers and codecs are made of.
//
// One implementation, compiled for several instruction sets and chosen when the program starts.
// Results are the same bits on all of them and for every length and alignment: elementwise
// functions round after each operation (no fused multiply-add), and sums add in a fixed order of
// kSumLanes interleaved partial sums. Nothing here starts threads or allocates.
//
// To add a function: declare it here, write a plain loop in span_math.cc under STARLING_VECTORISED,
// and add it to the tests against a scalar loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace starling::kernels {

// Partial sums that Sum, SumOfSquares and Dot keep: element i goes to sum i % kSumLanes, and those
// are added in order at the end.
inline constexpr std::size_t kSumLanes = 16;

// y = value
void Fill(float value, std::span<float> y);

// Spans of one call have equal lengths (a broken invariant otherwise) and do not overlap in part.
// y = x
void Copy(std::span<const float> x, std::span<float> y);
// y = x for bytes, past the caches: faster where y is not read again before as much else has been.
void CopyPastCaches(std::span<const std::byte> x, std::span<std::byte> y);
// y = y + x
void Add(std::span<const float> x, std::span<float> y);
void Add(std::span<const double> x, std::span<double> y);
// y = x + z
void SumOf(std::span<const float> x, std::span<const float> z, std::span<float> y);
// y = y - x
void Subtract(std::span<const float> x, std::span<float> y);
// y = x - z
void DifferenceOf(std::span<const float> x, std::span<const float> z, std::span<float> y);
// y = a * y
void Scale(float a, std::span<float> y);
// y = 0 where x is not
void ClearWhereNonZero(std::span<const float> x, std::span<float> y);
// y = y + a * x, the product rounded first
void Axpy(float a, std::span<const float> x, std::span<float> y);
// y = min(y, x), y = max(y, x)
void Minimum(std::span<const std::int64_t> x, std::span<std::int64_t> y);
void Maximum(std::span<const std::int64_t> x, std::span<std::int64_t> y);

// In double precision.
double Sum(std::span<const float> x);
double SumOfSquares(std::span<const float> x);
double Dot(std::span<const float> x, std::span<const float> y);

// Whether no element is infinite or NaN.
bool AllFinite(std::span<const float> x);

}  // namespace starling::kernels
