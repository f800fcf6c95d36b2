// SPDX-License-Identifier: Apache-2.0
#include "trainer/image/resample.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/test_images.h"

namespace starling::image {
namespace {

using testing::Each;
using testing::ElementsAre;

std::vector<std::uint8_t> At(const Image& image, const Box& box, Size to) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(image.channels * to.width * to.height));
  Resample(image, box, to, pixels);
  return pixels;
}

Box All(const Image& image) {
  return {0, 0, static_cast<double>(image.size.width), static_cast<double>(image.size.height)};
}

TEST(Resample, AtItsOwnSizeAnImageStaysAndItsChannelsComeApart) {
  const Image image{
      .size = {2, 2}, .channels = 3, .pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
  EXPECT_THAT(At(image, All(image), {2, 2}), ElementsAre(1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12));
}

TEST(Resample, ABoxIsCutOut) {
  Image image{.size = {4, 3}, .channels = 1, .pixels = {}};
  for (std::uint8_t i = 0; i < 12; ++i) image.pixels.push_back(i);
  EXPECT_THAT(At(image, {1, 1, 2, 2}, {2, 2}), ElementsAre(5, 6, 9, 10));
}

// As Pillow 10 makes it: Image.fromarray(...).resize((4, 1), Image.BILINEAR) of [[0, 100]].
TEST(Resample, BetweenPixelsItIsLinear) {
  const Image image{.size = {2, 1}, .channels = 1, .pixels = {0, 100}};
  EXPECT_THAT(At(image, All(image), {4, 1}), ElementsAre(0, 25, 75, 100));
}

// The triangle over eight pixels to four: weights 1, 3, 3, 1 of eight where none lies outside.
TEST(Resample, WhatIsMadeSmallerIsAMeanAndNotASample) {
  const Image image{.size = {8, 1}, .channels = 1, .pixels = {0, 0, 80, 0, 0, 0, 0, 160}};
  EXPECT_THAT(At(image, All(image), {4, 1}), ElementsAre(11, 30, 0, 69));
}

TEST(Resample, ColourThatIsEvenStaysSo) {
  const Image image{
      .size = {97, 61}, .channels = 3, .pixels = std::vector<std::uint8_t>(97 * 61 * 3, 201)};
  EXPECT_THAT(At(image, {3.25, 7.5, 80.1, 33.3}, {50, 70}), Each(201));
  EXPECT_THAT(At(image, All(image), {1, 1}), Each(201));
}

TEST(Resample, ExtremesStayWithinAByte) {
  Image image{.size = {64, 64}, .channels = 1, .pixels = {}};
  for (int i = 0; i < 64 * 64; ++i) image.pixels.push_back(i / 64 % 2 == 0 ? 255 : 0);
  const auto pixels = At(image, All(image), {64, 32});
  EXPECT_THAT(pixels, Each(testing::AllOf(testing::Ge(60), testing::Le(195))));
}

}  // namespace
}  // namespace starling::image
