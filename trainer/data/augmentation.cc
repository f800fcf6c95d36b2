// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/augmentation.h"

#include <algorithm>
#include <cmath>

#include "common/random/philox.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::data {
namespace {

constexpr int kAttempts = 10;
constexpr int kDrawsOfAttempt = 4;    // area, ratio, left, top
constexpr std::uint64_t kDraws = 64;  // of one sample, of which some stay unused
constexpr std::uint64_t kFlipDraw = kDraws - 1;
static_assert(kAttempts * kDrawsOfAttempt < static_cast<int>(kFlipDraw));
constexpr double kLeastRatio = 3.0 / 4;
constexpr double kLeastArea = 0.08;  // by default

double RatioOf(image::Size size) {
  return static_cast<double>(size.width) / static_cast<double>(size.height);
}

// The draws of one sample.
class Draws {
 public:
  Draws(std::uint64_t seed, std::int64_t epoch, std::int64_t sample)
      : philox_(seed, random::Stream::kAugmentation, static_cast<std::uint64_t>(epoch)),
        first_(static_cast<std::uint64_t>(sample) * kDraws) {}

  double Uniform(std::uint64_t draw) const { return philox_.Uniform(first_ + draw); }
  // From 0 to `last`, both included.
  double UpTo(std::uint64_t draw, std::int64_t last) const {
    return static_cast<double>(philox_.Below(first_ + draw, static_cast<std::uint64_t>(last) + 1));
  }

 private:
  const random::Philox philox_;
  const std::uint64_t first_;
};

image::Box DrawBox(const Draws& draws, double least_area, image::Size image, image::Size shape) {
  const auto area = static_cast<double>(image.width * image.height);
  for (std::uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t draw = attempt * kDrawsOfAttempt;
    const double part = area * (least_area + (1 - least_area) * draws.Uniform(draw));
    // Even on the scale of logarithms: 3 : 4 is as likely as 4 : 3.
    const double ratio = RatioOf(shape) * std::pow(kLeastRatio, 1 - 2 * draws.Uniform(draw + 1));
    const std::int64_t width = std::llround(std::sqrt(part * ratio));
    const std::int64_t height = std::llround(std::sqrt(part / ratio));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    return {draws.UpTo(draw + 2, image.width - width), draws.UpTo(draw + 3, image.height - height),
            static_cast<double>(width), static_cast<double>(height)};
  }
  return Centred(image, shape).box;
}

}  // namespace

Placement Centred(image::Size image, image::Size shape) {
  const auto fit = [](std::int64_t side, double most) {
    return std::clamp<std::int64_t>(std::llround(most), 1, side);
  };
  const std::int64_t width = fit(image.width, static_cast<double>(image.height) * RatioOf(shape));
  const std::int64_t height = fit(image.height, static_cast<double>(image.width) / RatioOf(shape));
  return {.box = {static_cast<double>((image.width - width) / 2),
                  static_cast<double>((image.height - height) / 2), static_cast<double>(width),
                  static_cast<double>(height)}};
}

Placement Draw(const v1alpha1::Augmentation& augmentation, std::uint64_t seed, std::int64_t epoch,
               std::int64_t sample, image::Size image, image::Size shape) {
  const Draws draws(seed, epoch, sample);
  Placement placement = Centred(image, shape);
  if (augmentation.has_random_crop()) {
    const v1alpha1::RandomCrop& crop = augmentation.random_crop();
    const double least = crop.has_minimum_area() ? crop.minimum_area() : kLeastArea;
    placement.box = DrawBox(draws, least, image, shape);
  }
  placement.mirrored = augmentation.flip() && draws.Uniform(kFlipDraw) < 0.5;
  return placement;
}

}  // namespace starling::data
