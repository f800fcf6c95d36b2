// SPDX-License-Identifier: Apache-2.0
#include "trainer/image/resample.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/status/check.h"

namespace starling::image {
namespace {

constexpr int kBits = 22;  // of a weight's fraction: 255 times their sum fits 32 bits
constexpr std::int32_t kHalf = 1 << (kBits - 1);

// What makes one output pixel: weights of the pixels from `first` on.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;
};

// Of each of `count` output pixels along one side: they cover [begin, begin + length) of `pixels`.
std::vector<Taps> TapsOf(double begin, double length, std::int64_t pixels, std::int64_t count) {
  const double step = length / static_cast<double>(count);
  const double reach = std::max(1.0, step);
  std::vector<Taps> all(static_cast<std::size_t>(count));
  std::vector<double> exact;
  for (std::int64_t i = 0; i < count; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * step;
    const auto first =
        std::clamp<std::int64_t>(std::llround(std::floor(centre - reach + 0.5)), 0, pixels - 1);
    const auto end =
        std::clamp<std::int64_t>(std::llround(std::floor(centre + reach + 0.5)), first + 1, pixels);
    exact.clear();
    double sum = 0;
    for (std::int64_t pixel = first; pixel < end; ++pixel) {
      const double distance = std::abs((static_cast<double>(pixel) + 0.5 - centre) / reach);
      exact.push_back(std::max(0.0, 1 - distance));
      sum += exact.back();
    }
    Taps& taps = all[static_cast<std::size_t>(i)];
    taps.first = first;
    for (const double weight : exact) {
      taps.weights.push_back(
          static_cast<std::int32_t>(std::lround(weight / sum * static_cast<double>(1 << kBits))));
    }
  }
  return all;
}

std::uint8_t Rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kBits, 0, 255));
}

}  // namespace

void Resample(const Image& image, const Box& box, Size to, std::span<std::uint8_t> into) {
  const auto channels = static_cast<std::size_t>(image.channels);
  const auto width = static_cast<std::size_t>(to.width);
  const auto row = static_cast<std::size_t>(image.size.width) * channels;
  STARLING_CHECK(into.size() == channels * width * static_cast<std::size_t>(to.height),
                 "Resample's target has the wanted size");
  const std::vector<Taps> across = TapsOf(box.left, box.width, image.size.width, to.width);
  const std::vector<Taps> down = TapsOf(box.top, box.height, image.size.height, to.height);
  const auto top = static_cast<std::size_t>(down.front().first);
  const std::size_t bottom =
      static_cast<std::size_t>(down.back().first) + down.back().weights.size();

  // Rows first: of those that are used, one channel behind another.
  const std::size_t rows = bottom - top;
  std::vector<std::uint8_t> narrow(channels * rows * width);
  for (std::size_t y = 0; y < rows; ++y) {
    const std::uint8_t* const source = image.pixels.data() + (top + y) * row;
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t channel = 0; channel < channels; ++channel) {
        std::int32_t sum = kHalf;
        const std::uint8_t* pixel =
            source + static_cast<std::size_t>(across[x].first) * channels + channel;
        for (const std::int32_t weight : across[x].weights) {
          sum += weight * *pixel;
          pixel += channels;
        }
        narrow[(channel * rows + y) * width + x] = Rounded(sum);
      }
    }
  }
  std::vector<std::int32_t> sums(width);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (std::size_t y = 0; y < down.size(); ++y) {
      std::fill(sums.begin(), sums.end(), kHalf);
      const std::size_t first = static_cast<std::size_t>(down[y].first) - top;
      for (std::size_t i = 0; i < down[y].weights.size(); ++i) {
        const std::uint8_t* const source = narrow.data() + (channel * rows + first + i) * width;
        const std::int32_t weight = down[y].weights[i];
        for (std::size_t x = 0; x < width; ++x) sums[x] += weight * source[x];
      }
      std::uint8_t* const target = into.data() + (channel * down.size() + y) * width;
      std::transform(sums.begin(), sums.end(), target, Rounded);
    }
  }
}

}  // namespace starling::image
