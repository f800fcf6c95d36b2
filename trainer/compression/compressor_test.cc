// SPDX-License-Identifier: Apache-2.0
#include "trainer/compression/compressor.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "starling/v1alpha1/training_job.pb.h"

namespace starling::compression {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::IsEmpty;
using ::testing::Pointwise;
using Floats = std::vector<float>;

class CompressorTest : public ::testing::TestWithParam<CodecKind> {
 protected:
  // What arrives of `values`.
  static Floats Sent(Compressor& compressor, std::uint64_t update, const Floats& values,
                     const Elements& elements = {}) {
    std::vector<std::byte> bytes(compressor.codec().MaxBytes(values.size()));
    const auto size = compressor.Encode(update, elements, values, bytes);
    EXPECT_TRUE(size.ok()) << size.status();
    Floats arrived(values.size());
    EXPECT_TRUE(compressor.codec().Decode(std::span(bytes).first(size.value_or(0)), arrived).ok());
    return arrived;
  }
  static void AddTo(Floats& sum, const Floats& values) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  static Floats Residual(Compressor& compressor) {
    return {compressor.residual().begin(), compressor.residual().end()};
  }
  const std::unique_ptr<Codec> codec_ = GetParam().make({});
};
// What is right on average by itself has nothing to keep.
std::vector<CodecKind> KindsToKeepFor() {
  std::vector<CodecKind> kinds;
  for (const CodecKind& kind : CodecKinds()) {
    if (!kind.make({})->unbiased()) kinds.push_back(kind);
  }
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(EachCodec, CompressorTest, ::testing::ValuesIn(KindsToKeepFor()),
                         [](const auto& one) { return std::string(one.param.name); });

// Of numbers whose low bits no 16-bit format holds.
Floats Third(std::size_t count) { return Floats(count, 1.0F / 3); }

TEST_P(CompressorTest, WhatWasSentAndWhatIsLeftAreWhatWasGiven) {
  Compressor compressor(*codec_, 64, true);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Floats given(64), arrived(64);
  for (std::uint64_t update = 1; update <= 100; ++update) {
    Floats gradient(64);
    for (float& value : gradient) value = normal(random);
    AddTo(given, gradient);
    AddTo(arrived, Sent(compressor, update, gradient));
    compressor.Commit(update);
  }
  AddTo(arrived, Residual(compressor));
  EXPECT_THAT(arrived, Pointwise(FloatNear(1e-4F), given));
}

// The negative control: the same thousand gradients without error feedback drift away.
TEST_P(CompressorTest, LowBitsAddUpWithErrorFeedbackAndAreLostWithoutIt) {
  constexpr int kUpdates = 1000;
  const double exact = kUpdates / 3.0;
  double sums[2] = {};
  for (const bool feedback : {false, true}) {
    Compressor compressor(*codec_, 1, feedback);
    for (std::uint64_t update = 1; update <= kUpdates; ++update) {
      sums[feedback ? 1 : 0] += Sent(compressor, update, Third(1))[0];
      compressor.Commit(update);
    }
  }
  EXPECT_NEAR(sums[1], exact, 0.01);
  // Of most others a single number is no shorter encoded, and travels as it is.
  if (codec_->lossless()) {
    EXPECT_NEAR(sums[0], exact, 0.01);
  } else if (codec_->close()) {
    EXPECT_GT(std::abs(sums[0] - exact), 0.02) << "the drift that error feedback is for";
  }
}

TEST_P(CompressorTest, AStepThatDoesNotCountLeavesTheResidualAsItWas) {
  Compressor compressor(*codec_, 8, true);
  (void)Sent(compressor, 1, Third(8));
  EXPECT_THAT(Residual(compressor), Each(0)) << "pending is not settled";
  compressor.Commit(1);
  const Floats before = Residual(compressor);
  const Floats first = Sent(compressor, 2, Third(8));
  EXPECT_EQ(Residual(compressor), before);
  compressor.Discard(2);
  EXPECT_EQ(Residual(compressor), before);
  EXPECT_EQ(Sent(compressor, 3, Third(8)), first) << "the step that is done again is the same";
}

// Pushes to servers: several are on their way, and one of the middle is refused.
TEST_P(CompressorTest, OfSeveralPendingOnesEachIsSettledByItself) {
  Compressor compressor(*codec_, 4, true);
  Floats arrived(4);
  for (std::uint64_t update = 1; update <= 3; ++update) {
    const Floats sent = Sent(compressor, update, Third(4));
    if (update != 2) AddTo(arrived, sent);
  }
  compressor.Discard(2);
  compressor.Commit(3);
  compressor.Commit(1);
  AddTo(arrived, Residual(compressor));
  EXPECT_THAT(arrived, Pointwise(FloatNear(1e-6F), Floats(4, 2.0F / 3)));
}

TEST_P(CompressorTest, NamedRowsKeepTheirOwnResiduals) {
  Compressor compressor(*codec_, 6, true);
  const std::vector<std::uint64_t> rows = {4, 1};
  Floats arrived = Sent(compressor, 1, Third(2), {0, rows});
  compressor.Commit(1);
  const Floats residual = Residual(compressor);
  EXPECT_THAT(Floats({residual[0], residual[2], residual[3], residual[5]}), Each(0));
  EXPECT_NEAR(arrived[0] + residual[4], 1.0 / 3, 1e-7);
  EXPECT_NEAR(arrived[1] + residual[1], 1.0 / 3, 1e-7);
}

TEST_P(CompressorTest, WhatIsReleasedIsInTheValuesAndNotInTheResidual) {
  Compressor compressor(*codec_, 2, true);
  Floats total = Sent(compressor, 1, Third(2));
  compressor.Commit(1);
  Floats values = {1, 1};
  compressor.Release(2, {}, values);
  compressor.Commit(2);
  EXPECT_THAT(Residual(compressor), Each(0));
  AddTo(total, values);
  EXPECT_THAT(total, Pointwise(FloatNear(1e-6F), Floats(2, 4.0F / 3)));
}

TEST_P(CompressorTest, WhoStartsOverHasNoResidual) {
  Compressor compressor(*codec_, 2, true);
  const Floats first = Sent(compressor, 1, Third(2));
  compressor.Commit(1);
  (void)Sent(compressor, 2, Third(2));
  compressor.Clear();
  compressor.Commit(2);
  EXPECT_THAT(Residual(compressor), Each(0));
  EXPECT_EQ(Sent(compressor, 3, Third(2)), first);
}

TEST_P(CompressorTest, ARestoredResidualIsUsedAgain) {
  Compressor saved(*codec_, 3, true), restored(*codec_, 3, true);
  (void)Sent(saved, 1, Third(3));
  saved.Commit(1);
  std::ranges::copy(saved.residual(), restored.residual().begin());
  restored.Restore();
  const Floats next = Sent(saved, 2, Third(3));
  EXPECT_EQ(Sent(restored, 2, Third(3)), next);
  saved.Discard(2);
  std::ranges::fill(saved.residual(), 9.0F);
  saved.Keep();
  EXPECT_EQ(Sent(saved, 3, Third(3)), next) << "what was overwritten by mistake is put back";
}

TEST_P(CompressorTest, ANumberThatIsNotFiniteIsSentAndNotKept) {
  Compressor compressor(*codec_, 1, true);
  EXPECT_TRUE(std::isnan(Sent(compressor, 1, {std::nanf("")})[0]));
  compressor.Commit(1);
  EXPECT_THAT(Residual(compressor), Each(0));
}

TEST_P(CompressorTest, WithoutErrorFeedbackNothingIsKept) {
  Compressor compressor(*codec_, 5, false);
  const Floats first = Sent(compressor, 1, Third(5));
  compressor.Discard(1);
  EXPECT_EQ(Sent(compressor, 1, Third(5)), first);
  EXPECT_THAT(Residual(compressor), IsEmpty());
}

}  // namespace
}  // namespace starling::compression
