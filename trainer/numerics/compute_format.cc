// SPDX-License-Identifier: Apache-2.0
// The table of formats that networks are computed in.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/kernels/magnitudes.h"
#include "trainer/kernels/quantise.h"
#include "trainer/kernels/rounding.h"
#include "trainer/numerics/numerics.h"

namespace starling::numerics {
namespace {

// That of the power of two above all of them; none where some are no numbers, which is to be seen.
std::optional<int> ExponentOf(std::span<const float> values) {
  const float largest = kernels::LargestMagnitude(values);
  if (!std::isfinite(largest) || largest == 0) return std::nullopt;
  int exponent = 0;
  (void)std::frexp(largest, &exponent);
  return exponent;
}

// The range is that of the largest of them; so nothing stops at its ends but that one.
void RoundToBits(int bits, std::span<float> values) {
  const std::optional<int> exponent = ExponentOf(values);
  if (!exponent) return;
  const float step = std::ldexp(1.0F, std::max(*exponent + 1 - bits, -126));
  const float end = std::ldexp(step, bits - 1);
  kernels::RoundToGrid({.step = step, .lowest = -end, .highest = end - step}, values);
}

// As codes of kernels/quantise.h and back.
void RoundToLogarithms(std::span<float> values) {
  constexpr std::size_t kAtOnce = 1024, kCodes = 256, kSign = 128, kZero = 127;
  const std::optional<int> exponent = ExponentOf(values);
  if (!exponent) return;
  std::array<float, kCodes> numbers{};
  for (std::size_t code = 0; code < kZero; ++code) {
    const double steps = static_cast<double>(code) / kernels::kLogSteps;
    numbers[code] = static_cast<float>(std::exp2(*exponent - steps));
    numbers[code + kSign] = -numbers[code];
  }
  std::array<std::uint8_t, kAtOnce> codes;
  while (!values.empty()) {
    const std::span<float> now = values.first(std::min(values.size(), kAtOnce));
    kernels::QuantiseLog(now, *exponent, std::span(codes).first(now.size()));
    for (std::size_t i = 0; i < now.size(); ++i) now[i] = numbers[codes[i]];
    values = values.subspan(now.size());
  }
}

struct ComputeKind {
  v1alpha1::ComputeFormat format;
  void (*round)(std::span<float> values);
};

constexpr ComputeKind kComputeKinds[] = {
    {v1alpha1::COMPUTE_FORMAT_FLOAT16, kernels::RoundToFloat16},
    {v1alpha1::COMPUTE_FORMAT_BFLOAT16, kernels::RoundToBfloat16},
};

Round MixedRounding(const v1alpha1::MixedPrecision& spec) {
  const auto* const kind = std::ranges::find(kComputeKinds, spec.compute(), &ComputeKind::format);
  return kind == std::end(kComputeKinds) ? Round(kernels::RoundToFloat16) : Round(kind->round);
}

}  // namespace

Round ComputeRounding(const v1alpha1::Numerics& spec) {
  switch (spec.kind_case()) {
    case v1alpha1::Numerics::kMixedPrecision:
      return MixedRounding(spec.mixed_precision());
    case v1alpha1::Numerics::kDynamicFixedPoint:
      return [bits = static_cast<int>(spec.dynamic_fixed_point().compute_bits())](
                 std::span<float> values) { RoundToBits(bits, values); };
    case v1alpha1::Numerics::kLogarithmic:
      return RoundToLogarithms;
    default:
      return {};
  }
}

}  // namespace starling::numerics
