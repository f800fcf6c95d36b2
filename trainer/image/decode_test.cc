// SPDX-License-Identifier: Apache-2.0
#include "trainer/image/decode.h"

#include <zlib.h>

#include <algorithm>
#include <cstdlib>

#include "common/random/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/test_images.h"

namespace starling::image {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

int LargestDifference(const Image& a, const Image& b) {
  int largest = a.pixels.size() == b.pixels.size() ? 0 : 256;
  for (std::size_t i = 0; largest < 256 && i < a.pixels.size(); ++i) {
    largest = std::max(largest, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  }
  return largest;
}

std::string Word(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// The file with other dimensions in its head; the sum over a PNG's head is made right again.
std::string Resized(std::string file, std::uint32_t width, std::uint32_t height) {
  if (file[0] == '\x89') {
    file.replace(16, 8, Word(width) + Word(height));
    const auto* const head = reinterpret_cast<const Bytef*>(file.data() + 12);
    file.replace(29, 4, Word(static_cast<std::uint32_t>(crc32(0, head, 17))));
    return file;
  }
  const std::size_t frame = file.find("\xff\xc0");
  file.replace(frame + 5, 4, Word(height).substr(2) + Word(width).substr(2));
  return file;
}

std::string ErrorOf(const std::string& file) {
  const auto image = Decode(BytesOf(file), 3, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(image.status())) << image.status();
  return std::string(image.status().message());
}

TEST(Decode, APngIsItsPixels) {
  for (const int channels : {1, 3}) {
    const Image drawn = Drawn({13, 7}, channels);
    const std::string file = PngOf(drawn);
    EXPECT_EQ(*SizeOf(BytesOf(file)), drawn.size);
    const auto image = Decode(BytesOf(file), channels, 1);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->size, drawn.size);
    EXPECT_EQ(image->pixels, drawn.pixels);
  }
}

TEST(Decode, AJpegIsNearlyItsPixels) {
  for (const int channels : {1, 3}) {
    for (const bool progressive : {false, true}) {
      const Image drawn = Drawn({40, 24}, channels);
      const auto image = Decode(BytesOf(JpegOf(drawn, 95, progressive)), channels, 1);
      ASSERT_TRUE(image.ok()) << image.status();
      EXPECT_EQ(image->size, drawn.size);
      EXPECT_LE(LargestDifference(*image, drawn), 8);
    }
  }
}

TEST(Decode, ChannelsAreMadeAsTheyAreAskedFor) {
  const auto colour = Decode(BytesOf(PngOf({.size = {1, 1}, .channels = 1, .pixels = {77}})), 3, 1);
  EXPECT_THAT(colour->pixels, ElementsAre(77, 77, 77));
  const auto grey = Decode(BytesOf(PngOf({{1, 1}, 3, {90, 90, 90}})), 1, 1);
  EXPECT_THAT(grey->pixels, ElementsAre(90));
}

TEST(Decode, WhatIsTransparentIsBlack) {
  const auto image = Decode(BytesOf(PngOf({{2, 1}, 4, {9, 8, 7, 255, 200, 200, 200, 0}})), 3, 1);
  EXPECT_THAT(image->pixels, ElementsAre(9, 8, 7, 0, 0, 0));
}

TEST(Decode, InksBecomeColours) {
  // No cyan, all magenta, all yellow and no black, as Adobe's programs write them: red.
  Image inks{.size = {16, 16}, .channels = 4, .pixels = {}};
  for (int i = 0; i < 256; ++i) {
    inks.pixels.insert(inks.pixels.end(), {255, 0, 0, 255});
  }
  const std::string file = JpegOf(inks);
  const auto image = Decode(BytesOf(file), 3, 1);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_GE(image->pixels[0], 250);
  EXPECT_LE(image->pixels[1], 5);
  EXPECT_LE(image->pixels[2], 5);
  EXPECT_NEAR(Decode(BytesOf(file), 1, 1)->pixels[0], 76, 5);
}

TEST(Decode, AJpegIsMadeSmallerAsFarAsItsPixelsAreNotNeeded) {
  const std::string file = JpegOf(Drawn({160, 96}, 3));
  const auto side = [&](double least) { return Decode(BytesOf(file), 3, least)->size.width; };
  EXPECT_EQ(side(1), 160);
  EXPECT_EQ(side(0.51), 160);
  EXPECT_EQ(side(0.5), 80);
  EXPECT_EQ(side(0.2), 40);
  EXPECT_EQ(side(0.01), 20);
}

TEST(Decode, AFileIsWhatItHoldsAndNotWhatItIsCalled) {
  EXPECT_EQ(ErrorOf(""), "is empty");
  EXPECT_EQ(ErrorOf("GIF89a and more"), "is neither a JPEG nor a PNG file");
  EXPECT_THAT(ErrorOf("\xff\xd8\xff\xe0"), HasSubstr("is a damaged JPEG file ("));
  EXPECT_THAT(ErrorOf("\x89PNG\r\n\x1a\n...."), HasSubstr("is a damaged PNG file ("));
}

TEST(Decode, WhatPromisesMorePixelsThanThereIsRoomForIsRefused) {
  const std::string words = "promises an image of 65000 by 65000 pixels, more than the 67108864";
  for (const std::string& file : {PngOf(Drawn({8, 8}, 3)), JpegOf(Drawn({8, 8}, 3))}) {
    const std::string bomb = Resized(file, 65000, 65000);
    EXPECT_THAT(ErrorOf(bomb), HasSubstr(words));
    EXPECT_FALSE(SizeOf(BytesOf(bomb)).ok());
  }
}

TEST(Decode, AHeadThatPromisesMoreThanTheFileHoldsIsDamage) {
  for (const std::string& file : {PngOf(Drawn({8, 8}, 3)), JpegOf(Drawn({8, 8}, 3))}) {
    EXPECT_THAT(ErrorOf(Resized(file, 300, 200)), HasSubstr("is a damaged"));
  }
}

TEST(Decode, ACutFileIsDamagedAndNeverHalfGrey) {
  for (const std::string& file : {PngOf(Drawn({24, 24}, 3)), JpegOf(Drawn({24, 24}, 3)),
                                  JpegOf(Drawn({24, 24}, 3), 90, true)}) {
    // The last bytes are an end mark, without which all pixels are there.
    for (std::size_t size = 0; size + 16 < file.size(); size += 3) {
      EXPECT_FALSE(Decode(BytesOf(file.substr(0, size)), 3, 1).ok()) << size;
    }
  }
}

// Under AddressSanitizer, too: bytes from anywhere are an error or an image, never a crash.
TEST(Decode, FlippedBitsAreAnErrorOrAnImageOfTheWantedForm) {
  const random::Philox dice(1, random::Stream::kTest);
  std::uint64_t throws = 0;
  int errors = 0;
  for (const std::string& file :
       {PngOf(Drawn({24, 20}, 3)), JpegOf(Drawn({24, 20}, 3)), JpegOf(Drawn({24, 20}, 1)),
        JpegOf(Drawn({24, 20}, 3), 80, true)}) {
    for (int round = 0; round < 1500; ++round) {
      std::string broken = file;
      const std::uint64_t flips = 1 + dice.Below(throws++, 8);
      for (std::uint64_t i = 0; i < flips; ++i) {
        const std::uint64_t bit = dice.Below(throws++, broken.size() * 8);
        broken[bit / 8] = static_cast<char>(broken[bit / 8] ^ (1 << bit % 8));
      }
      const int channels = round % 2 == 0 ? 3 : 1;
      const auto image = Decode(BytesOf(broken), channels, round % 3 == 0 ? 0.1 : 1);
      if (!image.ok()) {
        ++errors;
        EXPECT_TRUE(absl::IsInvalidArgument(image.status())) << image.status();
        continue;
      }
      ASSERT_EQ(image->pixels.size(),
                static_cast<std::size_t>(image->size.width * image->size.height * channels));
    }
  }
  EXPECT_GT(errors, 1500) << "damage is mostly found";
}

}  // namespace
}  // namespace starling::image
