// SPDX-License-Identifier: Apache-2.0
#include "trainer/client/shard_gradient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "trainer/parameter_server/factors.h"
#include "trainer/testing/tiny_engine.h"
#include "trainer/workload/classification.h"

namespace starling::client {
namespace {

using parameter_server::DecodedUpdate;
using parameter_server::Keys;
using parameter_server::UpdateKind;
using parameter_server::UpdatePtr;

constexpr std::int64_t kInputs = 30, kClasses = 20;
constexpr std::uint64_t kParameters = kClasses + kInputs * kClasses;
constexpr float kScale = 0.25F;

// As a worker without error feedback encodes.
class Encoding {
 public:
  explicit Encoding(compression::CodecNumber codec = compression::kIdentity)
      : compressor_(**compression::FindCodec(codec), 0, false), push_{codec, compressor_, 1} {}
  operator const PushEncoding&() const { return push_; }  // NOLINT(google-explicit-constructor)

 private:
  compression::Compressor compressor_;
  PushEncoding push_;
};
constexpr compression::CodecNumber kBFloat16 = 1;

std::vector<float> ValuesOf(const UpdatePtr& update) {
  const absl::StatusOr<DecodedUpdate> decoded = parameter_server::Decode(update, 1);
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  return {decoded->update.values.begin(), decoded->update.values.end()};
}

class ShardGradientTest : public ::testing::Test {
 protected:
  void Compute(std::size_t samples) {
    std::vector<std::int64_t> ids(samples);
    std::iota(ids.begin(), ids.end(), 0);
    ASSERT_TRUE(workload_.Compute(ids, {}).ok());
  }
  // [begin, end) as it is sent, multiplied and divided by the scale.
  void ExpectGradient(std::uint64_t begin, std::uint64_t end, UpdateKind kind) {
    const UpdatePtr encoded =
        EncodeFactored({begin, end}, workload_.gradients(), kScale, Encoding(), workload_);
    ASSERT_NE(encoded, nullptr);
    const auto decoded = parameter_server::Decode(encoded, 1);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    const parameter_server::Update* update = &decoded->update;
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
      expected.push_back(kScale * workload_.gradients()[i]);
    }
    EXPECT_THAT(sent, ::testing::Pointwise(::testing::FloatNear(1e-6F), expected));
  }

  static data::Datasets Samples() {
    constexpr std::int64_t kSamples = 20;
    data::Datasets datasets;
    datasets.train.shape = {kInputs};
    datasets.train.classes = kClasses;
    datasets.train.labels.assign(kSamples, 3);
    for (std::int64_t i = 0; i < kSamples * kInputs; ++i) {
      datasets.train.features.push_back(std::sin(static_cast<float>(i)));
    }
    return datasets;
  }

  workload::Classification workload_{
      Samples(), std::make_unique<worker::TinyEngine>(kInputs, kClasses, 7), ""};
};

TEST_F(ShardGradientTest, ProductsAreSentWhereTheyAreShorterWhereverTheShardBeginsAndEnds) {
  workload_.KeepFactors();
  Compute(4);
  ExpectGradient(0, kParameters, UpdateKind::kFactors);
  ExpectGradient(0, kClasses, UpdateKind::kRange);
  for (std::uint64_t begin = 0; begin < 90; begin += 7) {
    ExpectGradient(begin, kParameters - begin, UpdateKind::kFactors);
    ExpectGradient(begin, begin + 10, UpdateKind::kRange);  // four samples of it are more
  }
}

// 20 samples of a matrix of 20 by 30 are 1000 numbers, the matrix is 600.
TEST_F(ShardGradientTest, ManySamplesAreSentAsTheSumTheyAre) {
  workload_.KeepFactors();
  Compute(20);
  ExpectGradient(0, kParameters, UpdateKind::kRange);
}

TEST_F(ShardGradientTest, AWorkloadWithoutFactorsSendsItsGradient) {
  Compute(4);
  ExpectGradient(0, kParameters, UpdateKind::kRange);
}

TEST_F(ShardGradientTest, WhatIsNotFiniteIsNotSent) {
  workload_.KeepFactors();
  Compute(4);
  const std::span<float> gradient = workload_.gradients();
  gradient[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(EncodeFactored({0, kParameters}, gradient, 1, Encoding(), workload_), nullptr);
  EXPECT_EQ(EncodeRange({0, 6}, gradient, 1, Encoding()), nullptr);
  const std::vector<std::uint64_t> rows = {1, 5};
  EXPECT_EQ(EncodeRows(rows, gradient, 1, Encoding()), nullptr);
  EXPECT_NE(EncodeRows(std::span(rows).first(1), gradient, 1, Encoding()), nullptr);
  EXPECT_NE(EncodeRange({6, 9}, gradient, 1, Encoding()), nullptr);
}

// Weights 0, 0, 0 and 1; halved, the gradients are 0.25, -0.25 and 0.26 of the zeros, and 0.1.
TEST(Kkt, WhatCannotChangeAZeroIsPushedAsZero) {
  const std::vector<float> weights = {0, 9, 0, 0, 1}, gradient = {0.5F, 9, -0.5F, 0.52F, 0.2F};
  const std::vector<std::uint64_t> rows = {0, 2, 3, 4};
  const auto pushed = [&](const std::optional<Kkt>& kkt) {
    return ValuesOf(EncodeRows(rows, gradient, 0.5F, Encoding(), kkt));
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
    const Encoding encoding(narrow ? kBFloat16 : compression::kIdentity);
    const std::vector<float> values =
        ValuesOf(EncodeRows(rows, gradient, 1, encoding, Kkt{weights, l1}));
    return std::vector<bool>{values[0] == 0, values[1] == 0};
  };
  EXPECT_THAT(zeros(1, false), ::testing::ElementsAre(false, true));
  EXPECT_THAT(zeros(1, true), ::testing::ElementsAre(true, true));
  EXPECT_THAT(zeros(0.9999, true), ::testing::ElementsAre(false, false));
}

// Rounded once, where they are encoded, and with error feedback kept.
TEST(PushEncodings, WhatARangeAndRowsLoseIsKeptByElement) {
  const std::vector<float> gradient = {1, 1.00390625F, 3, 1.01171875F};  // the odd ones need 9 bits
  compression::Compressor compressor(**compression::FindCodec(kBFloat16), 4, true);
  const UpdatePtr range = EncodeRange({0, 2}, gradient, 1, {kBFloat16, compressor, 1});
  const UpdatePtr rows = EncodeRows(Keys{3}, gradient, 1, {kBFloat16, compressor, 2});
  EXPECT_EQ(range->body->size(), 4U);
  for (const std::uint64_t update : {1, 2}) compressor.Commit(update);
  const std::vector<float> arrived = {ValuesOf(range)[0], ValuesOf(range)[1], gradient[2],
                                      ValuesOf(rows)[0]};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(arrived[i] + compressor.residual()[i], gradient[i]) << i;
    EXPECT_EQ(compressor.residual()[i] != 0, i % 2 == 1) << i;
  }
}

}  // namespace
}  // namespace starling::client
