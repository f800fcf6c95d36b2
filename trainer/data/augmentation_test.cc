// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/augmentation.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::data {
namespace {

constexpr image::Size kPhoto = {500, 375};
constexpr image::Size kSquare = {64, 64};

v1alpha1::Augmentation Everything(double least_area = 0.08) {
  v1alpha1::Augmentation augmentation;
  augmentation.mutable_random_crop()->set_minimum_area(least_area);
  augmentation.set_flip(true);
  return augmentation;
}

TEST(Augmentation, TheMiddleHasTheRatioOfTheShape) {
  EXPECT_EQ(Centred(kPhoto, kSquare).box, (image::Box{62, 0, 375, 375}));
  EXPECT_EQ(Centred({100, 300}, {20, 10}).box, (image::Box{0, 125, 100, 50}));
  EXPECT_EQ(Centred({7, 7}, kSquare).box, (image::Box{0, 0, 7, 7}));
  EXPECT_EQ(Centred({4000, 1}, kSquare).box, (image::Box{1999, 0, 1, 1}));
}

TEST(Augmentation, ItDependsOnSeedEpochAndSampleAloneAndOnEachOfThem) {
  const auto drawn = [](std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
    return Draw(Everything(), seed, epoch, sample, kPhoto, kSquare);
  };
  EXPECT_EQ(drawn(1, 2, 3), drawn(1, 2, 3));
  EXPECT_NE(drawn(1, 2, 3).box, drawn(2, 2, 3).box);
  EXPECT_NE(drawn(1, 2, 3).box, drawn(1, 3, 3).box);
  EXPECT_NE(drawn(1, 2, 3).box, drawn(1, 2, 4).box);
}

// Running jobs go on under a newer version: what is drawn must stay what it was.
TEST(Augmentation, ItIsTheSameInEveryVersion) {
  const Placement placement = Draw(Everything(), 1, 1, 1, kPhoto, kSquare);
  EXPECT_EQ(placement.box, (image::Box{64, 101, 244, 223}));
}

TEST(Augmentation, PartsLieWithinTheImageAndHaveAreaAndRatioAsWanted) {
  double least = 1, most = 0, left = 0;
  for (std::int64_t sample = 0; sample < 2000; ++sample) {
    const image::Box box = Draw(Everything(0.25), 5, 1, sample, kPhoto, kSquare).box;
    EXPECT_GE(box.left, 0);
    EXPECT_GE(box.top, 0);
    EXPECT_LE(box.left + box.width, 500);
    EXPECT_LE(box.top + box.height, 375);
    EXPECT_GT(box.width / box.height, 0.74);
    EXPECT_LT(box.width / box.height, 1.35);
    const double area = box.width * box.height / (500 * 375);
    EXPECT_GT(area, 0.245);
    least = std::min(least, area);
    most = std::max(most, area);
    left += box.left / 2000;
  }
  EXPECT_LT(least, 0.27);
  EXPECT_GT(most, 0.85);
  EXPECT_GT(left, 80);
  EXPECT_LT(left, 130);
}

TEST(Augmentation, OneHalfIsMirroredIfItIsWanted) {
  int mirrored = 0;
  for (std::int64_t sample = 0; sample < 2000; ++sample) {
    mirrored += Draw(Everything(), 5, 1, sample, kPhoto, kSquare).mirrored ? 1 : 0;
    EXPECT_FALSE(Draw({}, 5, 1, sample, kPhoto, kSquare).mirrored);
  }
  EXPECT_NEAR(mirrored, 1000, 100);
}

TEST(Augmentation, WithoutACropItIsTheMiddle) {
  v1alpha1::Augmentation flip;
  flip.set_flip(true);
  EXPECT_EQ(Draw(flip, 1, 2, 3, kPhoto, kSquare).box, Centred(kPhoto, kSquare).box);
}

TEST(Augmentation, AnImageOfWhichNoPartFitsIsUsedAroundTheMiddle) {
  EXPECT_EQ(Draw(Everything(0.9), 1, 1, 1, {1000, 1}, kSquare).box, (image::Box{499, 0, 1, 1}));
}

}  // namespace
}  // namespace starling::data
