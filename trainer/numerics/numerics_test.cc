// SPDX-License-Identifier: Apache-2.0
#include "trainer/numerics/numerics.h"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::numerics {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

v1alpha1::Numerics Mixed(double scale, std::int64_t grow_every) {
  v1alpha1::Numerics spec;
  spec.mutable_mixed_precision()->set_loss_scale(scale);
  spec.mutable_mixed_precision()->set_grow_every(grow_every);
  return spec;
}

TEST(LossScale, HalvesWithEachSkippedStepAndDoublesAfterSoManyGoodOnes) {
  Numerics numerics(Mixed(16, 3), 1, {});
  numerics.Applied();
  numerics.Applied();
  numerics.Skipped();
  EXPECT_EQ(numerics.loss_scale(), 8);
  numerics.Applied();
  numerics.Applied();
  EXPECT_EQ(numerics.loss_scale(), 8) << "steps before the skipped one do not count";
  numerics.Applied();
  EXPECT_EQ(numerics.loss_scale(), 16);
  EXPECT_EQ(numerics.skipped(), 1);
  EXPECT_THAT(numerics.Told(),
              ElementsAre(Pair("numerics/lossScale", 16.0), Pair("numerics/skippedSteps", 1.0)));
}

TEST(LossScale, AtOneWhatIsInfiniteIsSoWithoutIt) {
  Numerics numerics(Mixed(4, 2000), 1, {});
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(numerics.CanSkip());
    numerics.Skipped();
  }
  EXPECT_EQ(numerics.loss_scale(), 1);
  EXPECT_FALSE(numerics.CanSkip());
}

TEST(LossScale, GrowsNoFurtherThanNumbersOf32BitsCarryItAndNeverWhereItIsNotTo) {
  Numerics growing(Mixed(1 << 23, 1), 1, {}), constant(Mixed(64, 0), 1, {});
  for (int i = 0; i < 100; ++i) {
    growing.Applied();
    constant.Applied();
  }
  EXPECT_EQ(growing.loss_scale(), 1 << 24);
  EXPECT_EQ(constant.loss_scale(), 64);
}

TEST(LossScale, WhoeverTakesOverTheStateGoesOnAsIfNothingHadHappened) {
  Numerics first(Mixed(16, 3), 1, {}), second(Mixed(16, 3), 1, {});
  checkpoint::StateParts of_first, of_second;
  first.Register(of_first);
  second.Register(of_second);
  EXPECT_EQ(of_first.parts().size(), 3U);
  first.Skipped();
  first.Applied();
  first.Applied();
  of_second.Adopt(of_first);
  first.Applied();
  second.Applied();
  EXPECT_EQ(second.loss_scale(), 16);
  EXPECT_EQ(second.Told(), first.Told());
}

TEST(Numerics, WithoutThemNothingIsRoundedKeptOrTold) {
  Numerics plain(v1alpha1::Numerics(), 1, {});
  checkpoint::StateParts parts;
  plain.Register(parts);
  EXPECT_THAT(parts.parts(), IsEmpty());
  EXPECT_EQ(plain.loss_scale(), 1);
  EXPECT_FALSE(plain.CanSkip());
  EXPECT_THAT(plain.Told(), IsEmpty());
  EXPECT_FALSE(ComputeRounding(v1alpha1::Numerics()));
}

TEST(ComputeRounding, IsThatOfTheFormatAndEveryFormatHasOne) {
  const auto* formats = v1alpha1::ComputeFormat_descriptor();
  std::vector<float> rounded;
  for (int i = 1; i < formats->value_count(); ++i) {
    v1alpha1::Numerics spec;
    spec.mutable_mixed_precision()->set_compute(
        static_cast<v1alpha1::ComputeFormat>(formats->value(i)->number()));
    float value = 1.00390625F;  // 1 + 2^-8
    ComputeRounding(spec)({&value, 1});
    rounded.push_back(value);
  }
  EXPECT_THAT(rounded, ElementsAre(1.00390625F, 1.0F));
}

TEST(ComputeRounding, LogarithmsAreWithinAStepAndProductsAreTheirSums) {
  v1alpha1::Numerics spec;
  spec.mutable_logarithmic();
  std::vector<float> values, before;
  for (int i = 0; i < 3000; ++i) values.push_back(std::exp2(-14.0F * static_cast<float>(i) / 3000));
  before = values;
  ComputeRounding(spec)(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i] / before[i], 1, 0.0443) << before[i];
    const double steps = 8 * std::log2(double{values[i]});
    EXPECT_NEAR(steps, std::nearbyint(steps), 1e-4);
  }
  std::vector<float> wrong = {1, std::numeric_limits<float>::infinity(), 0.3F};
  ComputeRounding(spec)(wrong);
  EXPECT_TRUE(std::isinf(wrong[1])) << "what has diverged is seen";
}

TEST(ComputeRounding, DynamicFixedPointHasTheRangeOfTheLargestAndSoManyBits) {
  v1alpha1::Numerics spec;
  spec.mutable_dynamic_fixed_point()->set_compute_bits(10);
  for (const float scale : {1e-6F, 1.0F, 3e4F}) {
    std::vector<float> values;
    for (int i = -500; i <= 500; ++i) values.push_back(scale * static_cast<float>(i) / 500);
    const std::vector<float> before = values;
    ComputeRounding(spec)(values);
    std::set<float> levels(values.begin(), values.end());
    EXPECT_LE(levels.size(), 1024U);
    EXPECT_GT(levels.size(), 500U);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], before[i], scale / 256) << before[i];
    }
  }
}

}  // namespace
}  // namespace starling::numerics
