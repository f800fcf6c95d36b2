// SPDX-License-Identifier: Apache-2.0
// What each codec that encodes tensors promises beyond the contract of all (codec_test.cc): its
// bytes by formula, what it decodes to, what is kept.
#include "trainer/compression/tensor_codec.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/compression/compressor.h"
#include "trainer/compression/selection.h"

namespace starling::compression {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using Floats = std::vector<float>;

Floats Normal(std::size_t count, std::uint32_t seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::unique_ptr<Codec> Make(std::string_view name, const v1alpha1::Codec& spec = {}) {
  for (const CodecKind& kind : CodecKinds()) {
    if (kind.name == name) return kind.make(spec);
  }
  ADD_FAILURE() << name;
  return nullptr;
}

struct Sent {
  std::size_t bytes = 0;
  Floats arrived;
};
Sent SentBy(const Codec& codec, const Floats& values, const Manner& manner = {}) {
  std::vector<std::byte> bytes(codec.MaxBytes(values.size()));
  const auto size = codec.EncodeIn(manner, values, bytes);
  EXPECT_TRUE(size.ok()) << size.status();
  Sent sent{size.value_or(0), Floats(values.size())};
  EXPECT_EQ(codec.Decode(std::span(bytes).first(sent.bytes), sent.arrived), absl::OkStatus());
  return sent;
}

std::ptrdiff_t NonZeros(const Floats& values) {
  return std::ranges::count_if(values, [](float value) { return value != 0; });
}

// Layout. -----------------------------------------------------------------------------------------

TEST(Layout, TilesAreOfWholeRowsWhereTheyCanBe) {
  const auto tiles = [](const Piece& piece, std::size_t most) {
    return Tiles(std::vector{piece}, most);
  };
  EXPECT_THAT(tiles({1000, 100, 100}, 1000), ElementsAre(Piece{1000, 100, 100}));
  EXPECT_THAT(tiles({1000, 100, 30}, 250),
              ElementsAre(Piece{230, 100, 30}, Piece{200, 100, 100}, Piece{200, 100, 100},
                          Piece{200, 100, 100}, Piece{170, 100, 100}));
  EXPECT_THAT(tiles({1000, 700, 600}, 250),
              ElementsAre(Piece{250, 700, 600}, Piece{250, 700, 350}, Piece{100, 700, 100},
                          Piece{250, 700, 700}, Piece{150, 700, 450}))
      << "longer rows are cut";
  EXPECT_THAT(tiles({310, 10, 10}, 250), ElementsAre(Piece{310, 10, 10}))
      << "what would be left is not worth a piece";
  EXPECT_THAT(tiles({1000, 0, 0}, 250), ElementsAre(Piece{1000, 0, 0})) << "as it is";
}

TEST(Layout, CutsAtTensorsAndLeavesVectorsAndSmallOnesAsTheyAre) {
  const std::vector<std::vector<std::int64_t>> shapes = {{20, 100}, {20}, {10, 20}, {30, 4, 5, 5}};
  const Layout layout(shapes);
  EXPECT_THAT(layout.Cut(0, 5220), ::testing::ElementsAre(Piece{2000, 100, 100}, Piece{220, 0, 0},
                                                          Piece{3000, 100, 100}));
  EXPECT_THAT(layout.Cut(130, 1000), ::testing::ElementsAre(Piece{1000, 100, 70}));
  EXPECT_THAT(layout.Cut(1950, 80), ::testing::ElementsAre(Piece{80, 0, 0}))
      << "what is left of a tensor is too short for a scale of its own";
  EXPECT_THAT(layout.Cut(7, 0), ::testing::IsEmpty());
  EXPECT_THAT(Layout().Cut(7, 9), ::testing::ElementsAre(Piece{9, 9, 9}));
}

// One bit. ----------------------------------------------------------------------------------------

TEST(OneBit, TakesAWordForEach32OfARowAndTwoMeans) {
  for (const std::size_t width : {512, 2048, 100}) {
    constexpr std::size_t kRows = 3;
    const std::vector<Piece> pieces = {{kRows * width, width, width}};
    const Floats values = Normal(kRows * width, 1);
    const std::size_t bits = kRows * (32 * ((width + 31) / 32) + 64);
    EXPECT_EQ(SentBy(*Make("oneBit"), values, {pieces}).bytes, kPieceHeadBytes + bits / 8);
  }
}

TEST(OneBit, EachRowHasTheMeansOfItsOwnSides) {
  Floats values(200);
  for (std::size_t i = 0; i < 200; ++i) {
    values[i] = (i % 4 == 0 ? -3.0F : 1.0F) * (i < 120 ? 1.0F : 10.0F);
  }
  values[1] = 7;                                       // of 90 others in the first row's upper side
  const std::vector<Piece> pieces = {{200, 100, 20}};  // rows of 20, 100 and 80
  const Floats arrived = SentBy(*Make("oneBit"), values, {pieces}).arrived;
  EXPECT_FLOAT_EQ(arrived[0], -3);
  EXPECT_FLOAT_EQ(arrived[1], (14 + 7) / 15.0F);
  EXPECT_FLOAT_EQ(arrived[19], arrived[1]);
  EXPECT_FLOAT_EQ(arrived[21], 1);
  EXPECT_FLOAT_EQ(arrived[120], -30);
  EXPECT_FLOAT_EQ(arrived[199], 10);
}

// Shares. -----------------------------------------------------------------------------------------

TEST(TopK, SendsAHundredthOfTheNumbersInEightBytesEach) {
  const auto codec = Make("topK");
  Compressor compressor(*codec, 60000, true);
  double density = 0;
  for (int step = 1; step <= 100; ++step) {
    const Floats gradient = Normal(60000, static_cast<std::uint32_t>(step));
    std::vector<std::byte> bytes(codec->MaxBytes(gradient.size()));
    const auto size = compressor.Encode(1, {}, gradient, bytes);
    ASSERT_TRUE(size.ok());
    compressor.Commit(1);
    Floats arrived(gradient.size());
    ASSERT_TRUE(codec->Decode(std::span(bytes).first(*size), arrived).ok());
    ASSERT_EQ(*size, kPieceHeadBytes + 8 * static_cast<std::size_t>(NonZeros(arrived)));
    density += static_cast<double>(NonZeros(arrived)) / 60000 / 100;
  }
  EXPECT_GT(density, 0.008);
  EXPECT_LT(density, 0.012);
}

TEST(TopK, WhatIsSentIsWhatIsLargest) {
  v1alpha1::Codec spec;
  spec.mutable_top_k()->set_density(0.02);
  spec.mutable_top_k()->set_sample_ratio(1);
  const Floats values = Normal(5000, 3);
  const Floats arrived = SentBy(*Make("topK", spec), values).arrived;
  EXPECT_EQ(NonZeros(arrived), 100);
  float smallest_sent = 100, largest_left = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (arrived[i] != 0) {
      EXPECT_EQ(arrived[i], values[i]);
      smallest_sent = std::min(smallest_sent, std::abs(values[i]));
    } else {
      largest_left = std::max(largest_left, std::abs(values[i]));
    }
  }
  EXPECT_GE(smallest_sent, largest_left);
}

TEST(Selection, OfEqualNumbersTheFirstAndOfZerosNone) {
  EXPECT_THAT(Largest(Floats(1000, -2.0F), 0.01, 0.001), ::testing::SizeIs(10));
  EXPECT_THAT(Largest(Floats(1000, 0.0F), 0.01, 0.001), ::testing::IsEmpty());
  Floats few(100000, 0.0F);
  few[7] = 1;
  few[99999] = -1;
  EXPECT_THAT(Largest(few, 0.01, 0.001), ::testing::ElementsAre(7, 99999));
}

TEST(Threshold, SendsTauWithASignInFourBytesAndKeepsTheRestExactly) {
  constexpr float kTau = 0.125F;
  v1alpha1::Codec spec;
  spec.mutable_threshold()->set_tau(kTau);
  const auto codec = Make("threshold", spec);
  Compressor compressor(*codec, 2000, true);
  std::vector<double> given(2000), sent(2000);
  std::mt19937 random(5);
  for (int step = 1; step <= 50; ++step) {
    Floats gradient(2000);
    for (float& value : gradient)
      value = static_cast<float>(static_cast<int>(random() % 17) - 8) / 256;
    std::vector<std::byte> bytes(codec->MaxBytes(2000));
    const auto size = compressor.Encode(1, {}, gradient, bytes);
    ASSERT_TRUE(size.ok());
    compressor.Commit(1);
    Floats arrived(2000);
    ASSERT_TRUE(codec->Decode(std::span(bytes).first(*size), arrived).ok());
    EXPECT_THAT(arrived, Each(::testing::AnyOf(-kTau, 0, kTau)));
    EXPECT_EQ(*size, kPieceHeadBytes + 4 + 4 * static_cast<std::size_t>(NonZeros(arrived)));
    for (std::size_t i = 0; i < 2000; ++i) {
      given[i] += double{gradient[i]};
      sent[i] += double{arrived[i]};
    }
  }
  EXPECT_GT(std::ranges::count_if(sent, [](double sum) { return sum != 0; }), 100);
  for (std::size_t i = 0; i < 2000; ++i) {
    ASSERT_EQ(sent[i] + double{compressor.residual()[i]}, given[i]) << "tau is a power of two";
  }
}

TEST(Threshold, WithoutATauItTakesTheOneThatAHundredthReaches) {
  const auto codec = Make("threshold");
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const Floats arrived = SentBy(*codec, Normal(60000, seed, seed % 2 == 0 ? 1e-6F : 30)).arrived;
    const double density = static_cast<double>(NonZeros(arrived)) / 60000;
    EXPECT_GT(density, 0.005);
    EXPECT_LT(density, 0.02);
    EXPECT_EQ((std::set<float>(arrived.begin(), arrived.end()).size()), 3U) << "-tau, 0 and tau";
  }
}

TEST(EntropyTopK, KeepsToTheBudgetAndGivesMoreToTensorsThatSpreadWider) {
  v1alpha1::Codec spec;
  spec.mutable_entropy_top_k()->set_density(0.01);
  Floats values = Normal(40000, 1);
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(0.5F, 0.99F);
  for (std::size_t i = 0; i < 20000; ++i) values[i] = uniform(random);  // two binades at most
  const std::vector<Piece> pieces = {{20000, 100, 100}, {20000, 100, 100}};
  const Floats arrived = SentBy(*Make("entropyTopK", spec), values, {pieces}).arrived;
  const auto narrow = NonZeros(Floats(arrived.begin(), arrived.begin() + 20000));
  const auto wide = NonZeros(Floats(arrived.begin() + 20000, arrived.end()));
  EXPECT_GT(wide, 2 * narrow);
  EXPECT_NEAR(static_cast<double>(narrow + wide), 400, 100) << "each threshold is an estimate";
}

TEST(SparseBinary, PlacesTakeEightBitsEachAndAllAreOneNumber) {
  const auto codec = Make("sparseBinary");
  double bits = 0, places = 0;
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    Floats values = Normal(100000, seed);
    for (float& value : values) value += 0.1F;  // so that the positive ones are larger
    const Sent sent = SentBy(*codec, values);
    EXPECT_EQ(NonZeros(sent.arrived), 1000);
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (sent.arrived[i] != 0) sum += double{values[i]};
    }
    std::set<float> numbers(sent.arrived.begin(), sent.arrived.end());
    ASSERT_EQ(numbers.size(), 2U);
    EXPECT_NEAR(*numbers.rbegin(), sum / 1000, 1e-5);
    bits += 8.0 * static_cast<double>(sent.bytes - kPieceHeadBytes - 9);
    places += 1000;
  }
  EXPECT_NEAR(bits / places, 8.11, 0.02 * 8.11);
}

// Whatever the sample says: of one sign, of few that are not 0, of many that are equal.
TEST(SparseBinary, TakesTheLargestOfTheLargerSide) {
  const auto codec = Make("sparseBinary");
  constexpr std::size_t kCount = 20000, kWanted = 200;
  const auto made = [&](const auto& change) {
    Floats values = Normal(kCount, 3);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = change(i, values[i]);
    return values;
  };
  for (const Floats& values :
       {made([](std::size_t, float x) { return x; }),
        made([](std::size_t, float x) { return -std::abs(x); }),
        made([](std::size_t, float x) { return x > 0 ? 0.001F * x : x; }),
        made([](std::size_t i, float x) { return i % 300 == 0 ? x : 0; }),
        made([](std::size_t i, float) { return i % 500 == 7 ? 2.0F
                                               : i % 3 == 0 ? -1.0F
                                                            : 1.0F; }),
        made([](std::size_t i, float x) { return i < 19000 ? 1e-3F * x : 100 * x; }),
        Floats(kCount)}) {
    double best = 0;
    std::vector<std::size_t> places;
    for (const float sign : {1.0F, -1.0F}) {
      std::vector<std::size_t> order;
      for (std::size_t i = 0; i < kCount; ++i) {
        if (sign * values[i] > 0) order.push_back(i);
      }
      std::ranges::stable_sort(order, std::greater<>(), [&](auto i) { return sign * values[i]; });
      order.resize(std::min(order.size(), kWanted));
      double mean = 0;
      for (const std::size_t place : order) {
        mean += double{sign * values[place]} / static_cast<double>(order.size());
      }
      if (mean <= best * (1 + 1e-12)) continue;
      best = mean;
      places = order;
    }
    std::ranges::sort(places);
    const Floats arrived = SentBy(*codec, values).arrived;
    std::vector<std::size_t> sent;
    for (std::size_t i = 0; i < kCount; ++i) {
      if (arrived[i] != 0) sent.push_back(i);
    }
    EXPECT_EQ(sent, places);
  }
}

// A number each. ----------------------------------------------------------------------------------

TEST(TernGrad, IsRightOnAverageOfManyDraws) {
  constexpr int kDraws = 100000;
  v1alpha1::Codec unclipped;
  unclipped.mutable_tern_grad()->set_clip_sigma(0);
  for (const bool clips : {false, true}) {
    const auto codec = clips ? Make("ternGrad") : Make("ternGrad", unclipped);
    Floats values = Normal(64, 11);
    values[5] = 20;
    double mean = 0, square = 0;
    for (const float value : values) mean += double{value} / 64;
    for (const float value : values) square += std::pow(double{value} - mean, 2) / 64;
    const double clip = clips ? 2.5 * std::sqrt(square) : 20;
    const double scale = std::min(20.0, clip);
    std::vector<double> sums(64);
    for (int draw = 1; draw <= kDraws; ++draw) {
      const Floats arrived =
          SentBy(*codec, values, {.draw = static_cast<std::uint64_t>(draw)}).arrived;
      for (std::size_t i = 0; i < 64; ++i) sums[i] += double{arrived[i]};
    }
    for (std::size_t i = 0; i < 64; ++i) {
      const double clipped = std::clamp(double{values[i]}, -clip, clip);
      const double variance = std::abs(clipped) * (scale - std::abs(clipped));
      EXPECT_NEAR(sums[i] / kDraws, clipped, 4 * std::sqrt(variance / kDraws) + 1e-5) << i;
    }
  }
}

TEST(TernGrad, TakesTwoBitsANumberAndAScale) {
  const Floats values = Normal(1001, 3);
  const Sent sent = SentBy(*Make("ternGrad"), values);
  EXPECT_EQ(sent.bytes, kPieceHeadBytes + 4 + 251);
  EXPECT_EQ((std::set<float>(sent.arrived.begin(), sent.arrived.end()).size()), 3U);
}

TEST(Int8, LosesNoMoreThanWithoutClippingAndLessWhereFewNumbersAreLarge) {
  const auto error = [](const Floats& values, const Floats& arrived) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += std::pow(double{values[i]} - double{arrived[i]}, 2);
    }
    return sum;
  };
  const auto unclipped = [](const Floats& values) {
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    Floats arrived;
    for (const float value : values) {
      arrived.push_back(std::nearbyint(value / (largest / 127)) * (largest / 127));
    }
    return arrived;
  };
  double of_cubes = 0;  // errors beside those without clipping
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    Floats values = Normal(20000, seed, seed % 2 == 0 ? 1e-8F : 1e8F);
    if (seed % 3 == 0) {
      for (float& value : values) value = value * value * value;
    }
    const double whole = error(values, unclipped(values));
    const double ours = error(values, SentBy(*Make("int8"), values).arrived);
    EXPECT_LE(ours, whole * (1 + 1e-6));
    if (seed % 3 == 0) of_cubes += ours / whole / 6;
  }
  EXPECT_LT(of_cubes, 0.99) << "a cube has a long tail";
}

TEST(Logarithmic, NumbersAreWithinASixteenthOfAFactorOfTwo) {
  const auto codec = Make("logarithmic");
  std::mt19937 random(3);
  std::uniform_real_distribution<float> exponent(-14, 0);
  for (const float scale : {1e-30F, 1.0F, 1e30F}) {
    Floats values(4000);
    for (float& value : values) {
      value = scale * std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0F : -1.0F);
    }
    values[0] = scale;
    const Sent sent = SentBy(*codec, values);
    EXPECT_EQ(sent.bytes, kPieceHeadBytes + 2 + 4000) << "a quarter";
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::abs(double{sent.arrived[i]} / double{values[i]} - 1));
    }
    EXPECT_LE(worst, std::exp2(1.0 / 16) - 1 + 1e-5);
    EXPECT_GT(worst, 0.03) << "it does round";
  }
}

TEST(Logarithmic, ProductsHaveTheSumsOfTheirCodes) {
  const auto codec = Make("logarithmic");
  const Floats arrived = SentBy(*codec, Normal(1000, 5)).arrived;
  for (std::size_t i = 1; i < arrived.size(); ++i) {
    if (arrived[i] == 0 || arrived[i - 1] == 0) continue;
    const double steps = 8 * std::log2(std::abs(double{arrived[i]} * double{arrived[i - 1]}));
    ASSERT_THAT(steps, DoubleNear(std::nearbyint(steps), 1e-5));
  }
}

// Sums of levels. ---------------------------------------------------------------------------------

v1alpha1::Codec WithSharedScales(std::string_view name) {
  v1alpha1::Codec spec;
  if (name == "int8") {
    spec.mutable_int8()->set_shared_scale(true);
  } else {
    spec.mutable_tern_grad()->set_shared_scale(true);
  }
  return spec;
}

// Two encodings of pieces that are, and are not, encoded; with the scales that both asked for if
// they agree.
std::vector<std::vector<std::byte>> TwoEncodings(const Codec& codec, bool agree) {
  const std::vector<Piece> pieces = {{600, 30, 30}, {40, 0, 0}, {700, 70, 10}};
  const Floats one = Normal(1340, 1), other = Normal(1340, 2, 3);
  const LevelSums& sums = *codec.level_sums();
  Floats scales = sums.Scales({.pieces = pieces}, one).value_or(Floats{});
  const Floats others = sums.Scales({.pieces = pieces}, other).value_or(Floats{});
  EXPECT_EQ(scales.size(), 3U);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = std::max(scales[i], others[i]);
  std::vector<std::vector<std::byte>> encoded;
  for (const Floats* values : {&one, &other}) {
    Manner manner{.pieces = pieces};
    if (agree) manner.scales = scales;
    encoded.emplace_back(codec.MaxBytes(values->size()));
    const auto size = codec.EncodeIn(manner, *values, encoded.back());
    EXPECT_TRUE(size.ok()) << size.status();
    encoded.back().resize(size.value_or(0));
  }
  return encoded;
}

absl::StatusOr<Floats> SumOf(const Codec& codec,
                             std::span<const std::vector<std::byte>> encodings) {
  const std::vector<std::span<const std::byte>> all(encodings.begin(), encodings.end());
  std::vector<std::byte> sum(codec.MaxBytes(1340));
  const auto size = codec.level_sums()->Add(all, 1340, sum);
  if (!size.ok()) return size.status();
  Floats values(1340);
  const absl::Status decoded = codec.level_sums()->Decode(
      std::span(sum).first(*size), static_cast<int>(encodings.size()), values);
  if (!decoded.ok()) return decoded;
  return values;
}

class LevelSumsTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<Codec> codec_ = Make(GetParam(), WithSharedScales(GetParam()));
};
INSTANTIATE_TEST_SUITE_P(Each, LevelSumsTest, ::testing::Values("int8", "ternGrad"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(LevelSumsTest, AreTheSumsOfWhatIsDecoded) {
  const auto encoded = TwoEncodings(*codec_, true);
  const auto sum = SumOf(*codec_, encoded);
  ASSERT_TRUE(sum.ok()) << sum.status();
  Floats one(1340), other(1340);
  ASSERT_EQ(codec_->Decode(encoded[0], one), absl::OkStatus());
  ASSERT_EQ(codec_->Decode(encoded[1], other), absl::OkStatus());
  for (std::size_t i = 0; i < sum->size(); ++i) {
    EXPECT_NEAR((*sum)[i], one[i] + other[i], 1e-6) << i;
  }
}

TEST_P(LevelSumsTest, TakeOneScaleAndOneCutAlone) {
  EXPECT_EQ(SumOf(*codec_, TwoEncodings(*codec_, false)).status().code(),
            absl::StatusCode::kInvalidArgument);
  auto encoded = TwoEncodings(*codec_, true);
  const std::vector<Piece> whole = {{1340, 10, 10}};
  encoded[1].resize(codec_->MaxBytes(1340));
  encoded[1].resize(codec_->EncodeIn({.pieces = whole}, Normal(1340, 1), encoded[1]).value_or(0));
  EXPECT_EQ(SumOf(*codec_, encoded).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Make(GetParam())->level_sums(), nullptr) << "only where the job says so";
}

TEST_P(LevelSumsTest, BelieveNothing) {
  std::mt19937 random(5);
  const auto encoded = TwoEncodings(*codec_, true);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    auto wrong = encoded;
    std::vector<std::byte>& bytes = wrong[random() % 2];
    if (i % 3 == 0) {
      bytes.resize(random() % bytes.size());
    } else if (i % 3 == 1) {
      bytes.push_back(std::byte{0});
    } else {
      bytes[random() % 40] ^= static_cast<std::byte>(1 + random() % 255);
    }
    const auto sum = SumOf(*codec_, wrong);
    if (!sum.ok()) {
      ++refused;
      EXPECT_EQ(sum.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
  EXPECT_GT(refused, 2500) << "a level that is another one cannot be told";

  std::vector<std::byte> sum(codec_->MaxBytes(1340));
  const std::vector<std::span<const std::byte>> all(encoded.begin(), encoded.end());
  sum.resize(codec_->level_sums()->Add(all, 1340, sum).value_or(0));
  Floats values(1340);
  EXPECT_EQ(codec_->level_sums()->Decode(sum, 2, values), absl::OkStatus());
  EXPECT_FALSE(codec_->level_sums()->Decode(sum, 4, values).ok()) << "of four others";
  for (std::size_t size = 0; size < sum.size(); size += 7) {
    EXPECT_FALSE(codec_->level_sums()->Decode(std::span(sum).first(size), 2, values).ok()) << size;
  }
  for (int i = 0; i < 3000; ++i) {
    auto wrong = sum;
    wrong[random() % wrong.size()] ^= static_cast<std::byte>(1 + random() % 255);
    (void)codec_->level_sums()->Decode(wrong, 2, values);
  }
}

// What stands around them. ------------------------------------------------------------------------

TEST(Momentum, IsAccumulatedAndForgottenWhereItWasSent) {
  v1alpha1::Codec spec;
  spec.mutable_deep_gradient_compression()->set_density(0.001);
  const auto codec = Make("deepGradientCompression", spec);
  CompressorOptions options{.momentum = 0.5};
  Compressor masked(*codec, 1000, options);
  options.masking = false;
  Compressor unmasked(*codec, 1000, options);
  Floats gradient(1000);
  gradient[3] = 1;
  gradient[4] = 8;
  std::vector<std::byte> bytes(codec->MaxBytes(1000));
  for (Compressor* compressor : {&masked, &unmasked}) {
    // 4 is sent at once; 3 gathers 1, then 1.5 more, then 1.75.
    for (std::uint64_t step = 1; step <= 3; ++step) {
      ASSERT_TRUE(compressor->Encode(step, {}, gradient, bytes).ok());
      compressor->Commit(step);
    }
  }
  EXPECT_FLOAT_EQ(masked.residual()[3], 1 + 1.5F + 1.75F);
  EXPECT_FLOAT_EQ(masked.residual()[1000 + 3], 1.75F);
  EXPECT_FLOAT_EQ(masked.residual()[4], 0);
  EXPECT_FLOAT_EQ(masked.residual()[1000 + 4], 0) << "it was sent: masked";
  EXPECT_FLOAT_EQ(unmasked.residual()[1000 + 4], 8 * 1.75F);
}

TEST(WarmUp, SendsMoreAtFirst) {
  const std::vector<std::vector<std::int64_t>> shapes = {{100, 100}};
  const Floats gradient = Normal(10000, 1);
  const auto bytes_at = [&](std::string_view name, std::int64_t step) {
    const auto codec = Make(name);
    Compressor compressor(*codec, 10000,
                          {.error_feedback = true, .layout = Layout(shapes), .warmup_steps = 8});
    compressor.OnStep(step);
    std::vector<std::byte> bytes(codec->MaxBytes(10000));
    return static_cast<double>(compressor.Encode(1, {}, gradient, bytes).value_or(0));
  };
  EXPECT_NEAR(bytes_at("topK", 1), 20000, 4000) << "a quarter";
  EXPECT_NEAR(bytes_at("topK", 3), 5000, 1000) << "a sixteenth";
  EXPECT_NEAR(bytes_at("topK", 8), 800, 200) << "its own share is more than a 256th";
  EXPECT_NEAR(bytes_at("topK", 9), 800, 200);
  EXPECT_EQ(bytes_at("oneBit", 8), kPieceHeadBytes + 40000);
  EXPECT_LT(bytes_at("oneBit", 9), 3000);
}

}  // namespace
}  // namespace starling::compression
