// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/slot_gradient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "trainer/parameter_server/factors.h"
#include "trainer/testing/tiny_engine.h"

namespace starling::worker {
namespace {

using parameter_server::DecodeUpdate;
using parameter_server::Update;
using parameter_server::UpdateKind;

constexpr std::int64_t kInputs = 30, kClasses = 20;
constexpr std::uint64_t kParameters = kClasses + kInputs * kClasses;
constexpr float kScale = 0.25F;

class SlotGradientTest : public ::testing::Test {
 protected:
  void Compute(std::size_t samples) {
    std::vector<float> features(samples * kInputs);
    for (std::size_t i = 0; i < features.size(); ++i) {
      features[i] = std::sin(static_cast<float>(i));
    }
    const std::vector<std::int64_t> labels(samples, 3);
    ASSERT_TRUE(engine_.ComputeGradients(features, labels, [](std::int64_t) {}).ok());
  }
  // [begin, end) as it is sent, multiplied and divided by the scale.
  void ExpectGradient(std::uint64_t begin, std::uint64_t end, UpdateKind kind) {
    const auto bytes = EncodeFactored({begin, end}, engine_.gradients(), kScale, engine_);
    ASSERT_TRUE(bytes.has_value());
    const auto update = DecodeUpdate(*bytes);
    ASSERT_TRUE(update.ok()) << update.status();
    EXPECT_EQ(update->kind, kind) << begin << " to " << end;
    EXPECT_EQ(update->first, begin);
    ASSERT_EQ(update->rows, end - begin);
    std::vector<float> sent(update->values.begin(), update->values.end());
    if (kind == UpdateKind::kFactors) {
      ASSERT_TRUE(parameter_server::StretchesOf(*update, 1).ok());
      EXPECT_LT(update->values.size(), end - begin);
      sent = parameter_server::Multiplied(*update, 1);
    }
    std::vector<float> expected;
    for (std::uint64_t i = begin; i < end; ++i) {
      expected.push_back(kScale * engine_.gradients()[i]);
    }
    EXPECT_THAT(sent, ::testing::Pointwise(::testing::FloatNear(1e-6F), expected));
  }

  TinyEngine engine_{kInputs, kClasses, 7};
};

TEST_F(SlotGradientTest, ProductsAreSentWhereTheyAreShorterWhereverTheSlotBeginsAndEnds) {
  engine_.KeepFactors();
  Compute(4);
  ExpectGradient(0, kParameters, UpdateKind::kFactors);
  ExpectGradient(0, kClasses, UpdateKind::kRange);
  for (std::uint64_t begin = 0; begin < 90; begin += 7) {
    ExpectGradient(begin, kParameters - begin, UpdateKind::kFactors);
    ExpectGradient(begin, begin + 10, UpdateKind::kRange);  // four samples of it are more
  }
}

// 20 samples of a matrix of 20 by 30 are 1000 numbers, the matrix is 600.
TEST_F(SlotGradientTest, ManySamplesAreSentAsTheSumTheyAre) {
  engine_.KeepFactors();
  Compute(20);
  ExpectGradient(0, kParameters, UpdateKind::kRange);
}

TEST_F(SlotGradientTest, AnEngineWithoutFactorsSendsItsGradient) {
  Compute(4);
  ExpectGradient(0, kParameters, UpdateKind::kRange);
}

TEST_F(SlotGradientTest, WhatIsNotFiniteIsNotSent) {
  engine_.KeepFactors();
  Compute(4);
  const std::span<float> gradient = engine_.gradients();
  gradient[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(EncodeFactored({0, kParameters}, gradient, 1, engine_), std::nullopt);
  EXPECT_EQ(EncodeRange({0, 6}, gradient, 1), std::nullopt);
  const std::vector<std::uint64_t> rows = {1, 5};
  EXPECT_EQ(EncodeRows(rows, gradient, 1), std::nullopt);
  EXPECT_TRUE(EncodeRows(std::span(rows).first(1), gradient, 1).has_value());
  EXPECT_TRUE(EncodeRange({6, 9}, gradient, 1).has_value());
}

// Weights 0, 0, 0 and 1; halved, the gradients are 0.25, -0.25 and 0.26 of the zeros, and 0.1.
TEST(Kkt, WhatCannotChangeAZeroIsPushedAsZero) {
  const std::vector<float> weights = {0, 9, 0, 0, 1}, gradient = {0.5F, 9, -0.5F, 0.52F, 0.2F};
  const std::vector<std::uint64_t> rows = {0, 2, 3, 4};
  const auto pushed = [&](const std::optional<Kkt>& kkt) {
    const std::string bytes = EncodeRows(rows, gradient, 0.5F, kkt).value_or("");
    const absl::StatusOr<Update> update = DecodeUpdate(bytes);
    EXPECT_TRUE(update.ok()) << update.status();
    return std::vector<float>(update->values.begin(), update->values.end());
  };
  EXPECT_THAT(pushed(std::nullopt), ::testing::ElementsAre(0.25F, -0.25F, 0.26F, 0.1F));
  EXPECT_THAT(pushed(Kkt{weights, 0.25}), ::testing::ElementsAre(0, 0, 0.26F, 0.1F));
  EXPECT_THAT(pushed(Kkt{weights, 0.125}), ::testing::ElementsAre(0.25F, -0.25F, 0.26F, 0.1F));
}

// 1.0039 is rounded to 1, and so does not exceed it any more; 0.999 is rounded up to it.
TEST(Kkt, WhatIsRoundedIsLookedAtAsItArrives) {
  const std::vector<float> weights(2), gradient = {1.0039F, 0.999F};
  const std::vector<std::uint64_t> rows = {0, 1};
  const auto zeros = [&](double l1, bool narrow) {
    const std::string bytes = EncodeRows(rows, gradient, 1, Kkt{weights, l1, narrow}).value_or("");
    const absl::StatusOr<Update> update = DecodeUpdate(bytes);
    EXPECT_TRUE(update.ok()) << update.status();
    return std::vector<bool>{update->values[0] == 0, update->values[1] == 0};
  };
  EXPECT_THAT(zeros(1, false), ::testing::ElementsAre(false, true));
  EXPECT_THAT(zeros(1, true), ::testing::ElementsAre(true, true));
  EXPECT_THAT(zeros(0.9999, true), ::testing::ElementsAre(false, false));
}

}  // namespace
}  // namespace starling::worker
