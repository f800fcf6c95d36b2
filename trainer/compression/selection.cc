// SPDX-License-Identifier: Apache-2.0
#include "trainer/compression/selection.h"

#include <algorithm>
#include <cmath>

#include "trainer/kernels/magnitudes.h"

namespace starling::compression {
namespace {

// Numbers of a sample that are above its threshold: so the share is right within an eighth.
constexpr double kAbove = 64;
// Shares of what is wanted that a threshold may give, by how much it is lowered, and how often.
constexpr double kTooFew = 0.8, kTooMany = 1.3, kLower = 0.8;
constexpr int kMostLowered = 10;

// The magnitude that `wanted` of `magnitudes` reach.
float Threshold(std::vector<float>& magnitudes, std::size_t wanted) {
  const auto nth = magnitudes.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
  std::nth_element(magnitudes.begin(), nth, magnitudes.end(), std::greater<>());
  return *nth;
}

// The `wanted` largest of those at `places`.
void KeepLargest(std::span<const float> values, std::size_t wanted,
                 std::vector<std::uint32_t>& places) {
  const auto larger = [&](std::uint32_t a, std::uint32_t b) {
    const float x = std::abs(values[a]), y = std::abs(values[b]);
    return x != y ? x > y : a < b;
  };
  const auto end = places.begin() + static_cast<std::ptrdiff_t>(wanted);
  std::nth_element(places.begin(), end - 1, places.end(), larger);
  places.erase(end, places.end());
  std::ranges::sort(places);
}

}  // namespace

std::size_t Wanted(std::size_t count, double density) {
  const auto share = static_cast<std::size_t>(std::ceil(density * static_cast<double>(count)));
  return std::clamp<std::size_t>(share, 1, std::max<std::size_t>(count, 1));
}

std::size_t MostSelected(std::size_t count, double density) {
  const auto most = kTooMany * static_cast<double>(Wanted(count, density));
  return std::min(count, static_cast<std::size_t>(most));
}

float SampledThreshold(std::span<const float> values, double density, double sample_ratio) {
  const auto count = static_cast<double>(values.size());
  const double wanted = std::max(sample_ratio * count, kAbove / density);
  const auto stride = static_cast<std::size_t>(std::max(1.0, count / wanted));
  std::vector<float> sample;
  sample.reserve(values.size() / stride + 1);
  for (std::size_t i = 0; i < values.size(); i += stride) sample.push_back(std::abs(values[i]));
  return Threshold(sample, Wanted(sample.size(), density));
}

std::vector<std::uint32_t> Largest(std::span<const float> values, double density,
                                   double sample_ratio) {
  if (values.empty()) return {};
  const std::size_t wanted = Wanted(values.size(), density);
  float threshold = SampledThreshold(values, density, sample_ratio);
  std::vector<std::uint32_t> places = kernels::AtLeast(values, threshold);
  for (int i = 0; i < kMostLowered && threshold > 0 &&
                  static_cast<double>(places.size()) < kTooFew * static_cast<double>(wanted);
       ++i) {
    threshold *= static_cast<float>(kLower);
    places = kernels::AtLeast(values, threshold);
  }
  if (places.size() > MostSelected(values.size(), density)) KeepLargest(values, wanted, places);
  return places;
}

}  // namespace starling::compression
