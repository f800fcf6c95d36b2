// SPDX-License-Identifier: Apache-2.0
// Weights in dynamic fixed point (Courbariaux, Bengio and David 2015): each tensor has a range of a
// power of two, which follows how many of its weights do not fit.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/kernels/magnitudes.h"
#include "trainer/numerics/draws.h"
#include "trainer/numerics/weight_rule.h"

namespace starling::numerics {
namespace {

constexpr std::int64_t kLeastExponent = -60, kMostExponent = 60;

// Of a tensor: weights lie in [-2^exponent, 2^exponent).
struct Range {
  std::int64_t exponent = 0;
  // Since the last look: weights that were rounded, did not fit, would not fit in half of it.
  std::int64_t rounded = 0;
  std::int64_t beyond = 0;
  std::int64_t beyond_half = 0;
  std::int64_t samples = 0;
};

class DynamicFixedPointRule final : public WeightRule {
 public:
  DynamicFixedPointRule(const v1alpha1::DynamicFixedPoint& spec, std::uint64_t seed,
                        const std::vector<WeightTensor>& tensors)
      : bits_(static_cast<int>(spec.update_bits())),
        most_(spec.max_overflow()),
        every_(spec.adjust_every()),
        seed_(seed),
        tensors_(tensors),
        ranges_(tensors.size()) {}

  void Register(checkpoint::StateParts& parts) override {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto part = [&](const char* what) {
        return absl::StrCat("numerics/", what, "/", tensors_[i].name);
      };
      parts.AddScalar(part("exponent"), ranges_[i].exponent);
      parts.AddScalar(part("rounded"), ranges_[i].rounded);
      parts.AddScalar(part("beyond"), ranges_[i].beyond);
      parts.AddScalar(part("beyondHalf"), ranges_[i].beyond_half);
      parts.AddScalar(part("samples"), ranges_[i].samples);
    }
  }

  // All first values fit.
  void Begin(std::size_t tensor, std::span<const float> weights) override {
    int exponent = 0;
    (void)std::frexp(kernels::LargestMagnitude(weights), &exponent);
    ranges_[tensor].exponent = std::clamp(std::int64_t{exponent}, kLeastExponent, kMostExponent);
  }

  void AfterUpdate(const WeightUpdate& update, std::span<float> weights) override {
    Range& range = ranges_[update.tensor];
    const float end = std::ldexp(1.0F, static_cast<int>(range.exponent));
    if (update.step > 0) Count(update, end, weights, range);
    const float step = std::ldexp(end, 1 - bits_);
    RoundByDraws(seed_, update.step, tensors_[update.tensor].offset,
                 {.step = step, .lowest = -end, .highest = end - step}, weights);
  }

  std::vector<std::pair<std::string, double>> Told() const override {
    double rounded = 0, beyond = 0;
    for (const Range& range : ranges_) {
      rounded += static_cast<double>(range.rounded);
      beyond += static_cast<double>(range.beyond);
    }
    return {{"numerics/overflow", rounded == 0 ? 0 : beyond / rounded}};
  }

 private:
  void Count(const WeightUpdate& update, float end, std::span<const float> weights,
             Range& range) const {
    range.rounded += static_cast<std::int64_t>(weights.size());
    range.samples += update.samples;
    for (const float weight : weights) {
      const float magnitude = std::abs(weight);
      range.beyond += magnitude >= end ? 1 : 0;
      range.beyond_half += magnitude >= end / 2 ? 1 : 0;
    }
    if (range.samples < every_) return;
    const double allowed = most_ * static_cast<double>(range.rounded);
    std::int64_t exponent = range.exponent;
    if (static_cast<double>(range.beyond) > allowed) {
      ++exponent;
    } else if (static_cast<double>(range.beyond_half) <= allowed) {
      --exponent;
    }
    range = {.exponent = std::clamp(exponent, kLeastExponent, kMostExponent)};
  }

  const int bits_;
  const double most_;
  const std::int64_t every_;
  const std::uint64_t seed_;
  const std::vector<WeightTensor> tensors_;
  std::vector<Range> ranges_;
};

}  // namespace

std::unique_ptr<WeightRule> DynamicFixedPointOf(const v1alpha1::Numerics& spec, std::uint64_t seed,
                                                const std::vector<WeightTensor>& tensors) {
  return std::make_unique<DynamicFixedPointRule>(spec.dynamic_fixed_point(), seed, tensors);
}

}  // namespace starling::numerics
