// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/encoded_allreduce.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ranges/ranges.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/collectives/allreduce.h"
#include "trainer/testing/transports.h"

namespace starling::collectives {
namespace {

using compression::Codec;
using compression::CodecKind;
using compression::Compressor;
using ::starling::transport::testing::Kind;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;

constexpr transport::Tag kTag{1, kFirstBucketChannel};
using Arrays = std::vector<std::vector<float>>;
using Meshes = std::vector<std::unique_ptr<transport::Mesh>>;
using Compressors = std::vector<Compressor>;

// Keeps what is not 0, with its place: sizes vary, and can be anything up to the most.
class SparseCodec final : public Codec {
 public:
  std::size_t MaxBytes(std::size_t count) const override { return 8 * count; }
  bool fixed_size() const override { return false; }
  bool lossless() const override { return true; }
  absl::StatusOr<std::size_t> Encode(buffer::ConstView values,
                                     std::span<std::byte> bytes) const override {
    const auto floats = values.As<float>();
    std::size_t at = 0;
    for (std::uint32_t i = 0; i < floats->size(); ++i) {
      if ((*floats)[i] == 0) continue;
      std::memcpy(&bytes[at], &i, 4);
      std::memcpy(&bytes[at + 4], &(*floats)[i], 4);
      at += 8;
    }
    return at;
  }
  absl::Status Decode(std::span<const std::byte> bytes, buffer::View values) const override {
    const auto floats = values.As<float>();
    std::ranges::fill(*floats, 0.0F);
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
      std::uint32_t i = 0;
      std::memcpy(&i, bytes.data(), 4);
      if (i >= floats->size()) return absl::InvalidArgumentError("a place that is none");
      std::memcpy(&(*floats)[i], &bytes[4], 4);
    }
    return absl::OkStatus();
  }
};

// Decodes nothing.
class RefusingCodec final : public Codec {
 public:
  std::size_t MaxBytes(std::size_t count) const override { return count; }
  absl::StatusOr<std::size_t> Encode(buffer::ConstView values,
                                     std::span<std::byte> bytes) const override {
    std::ranges::fill(bytes, std::byte{1});
    return values.size();
  }
  absl::Status Decode(std::span<const std::byte>, buffer::View) const override {
    return absl::InvalidArgumentError("not mine");
  }
};

Arrays Gradients(int ranks, std::size_t length, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Arrays arrays(ranks, std::vector<float>(length));
  for (auto& array : arrays) {
    for (float& value : array) value = random() % 4 == 0 ? 0 : normal(random);
  }
  return arrays;
}

Compressors NewCompressors(const Codec& codec, int ranks, std::size_t length, bool feedback) {
  Compressors made;
  for (int rank = 0; rank < ranks; ++rank) made.emplace_back(codec, length, feedback);
  return made;
}

Arrays Reduced(const Meshes& meshes, Compressors& compressors, Arrays arrays,
               std::uint64_t update = 1) {
  OnEachRank(static_cast<int>(meshes.size()), [&](int rank) {
    Workspace workspace;
    const Communicator communicator{*meshes[rank], {update, kTag.channel}, Soon(), workspace};
    EXPECT_EQ(EncodedAllreduce(communicator, compressors[rank], update, 0, arrays[rank]).status(),
              absl::OkStatus());
    compressors[rank].Commit(update);
  });
  return arrays;
}

std::vector<double> Sum(const Arrays& arrays) {
  std::vector<double> sum(arrays[0].size());
  for (const auto& array : arrays) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += double{array[i]};
  }
  return sum;
}

// Those of the table, and with scales that ranks agree on those that can.
std::vector<CodecKind> Kinds() {
  std::vector<CodecKind> kinds(compression::CodecKinds().begin(), compression::CodecKinds().end());
  kinds.push_back({"int8WithSharedScales", [](const v1alpha1::Codec&) {
                     v1alpha1::Codec spec;
                     spec.mutable_int8()->set_shared_scale(true);
                     return compression::NewInt8Codec(spec);
                   }});
  kinds.push_back({"ternGradWithSharedScales", [](const v1alpha1::Codec&) {
                     v1alpha1::Codec spec;
                     spec.mutable_tern_grad()->set_shared_scale(true);
                     return compression::NewTernGradCodec(spec);
                   }});
  return kinds;
}

class EncodedAllreduceTest : public ::testing::TestWithParam<CodecKind> {
 protected:
  const std::unique_ptr<Codec> codec_ = GetParam().make({});
};
INSTANTIATE_TEST_SUITE_P(EachCodec, EncodedAllreduceTest, ::testing::ValuesIn(Kinds()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(EncodedAllreduceTest, AllRanksHaveTheSameBitsCloseToTheSum) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    Members members(Kind::kInproc, ranks);
    const Meshes meshes = members.OpenAll(1);
    for (const std::size_t length : {0, 1, 3, 4, 5, 1000}) {
      const Arrays given = Gradients(ranks, length, static_cast<std::uint32_t>(length + 7));
      Compressors compressors = NewCompressors(*codec_, ranks, length, false);
      const Arrays reduced = Reduced(meshes, compressors, given, length + 1);
      const std::vector<double> sum = Sum(given);
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(std::memcmp(reduced[rank].data(), reduced[0].data(), length * sizeof(float)), 0);
      }
      // Of each share and of the sum at most 2^-8 is lost.
      for (std::size_t i = 0; i < length && codec_->close(); ++i) {
        double magnitudes = std::abs(sum[i]) + 1e-3;
        for (const auto& array : given) magnitudes += std::abs(double{array[i]});
        ASSERT_NEAR(reduced[0][i], sum[i], codec_->lossless() ? 1e-5 : magnitudes / 256) << i;
      }
    }
  }
}

class CloseEncodedAllreduceTest : public EncodedAllreduceTest {};
std::vector<CodecKind> KindsThat(bool (*hold)(const Codec&)) {
  std::vector<CodecKind> kinds;
  for (const CodecKind& kind : Kinds()) {
    if (hold(*kind.make({}))) kinds.push_back(kind);
  }
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(CloseCodecs, CloseEncodedAllreduceTest,
                         ::testing::ValuesIn(KindsThat([](const Codec& codec) {
                           return codec.close();
                         })),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(CloseEncodedAllreduceTest, SendsTheBytesOfARingTimesWhatTheCodecLeavesOfThem) {
  for (const int ranks : {2, 3, 4}) {
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t length = 600 * n;
    Members members(Kind::kInproc, ranks);
    const Meshes ring = members.OpenAll(1), encoded = members.OpenAll(2);
    OnEachRank(ranks, [&](int rank) {
      Workspace workspace;
      std::vector<float> data(length, 1);
      ASSERT_EQ(Allreduce(Algorithm::kRing, {*ring[rank], kTag, Soon(), workspace}, data),
                absl::OkStatus());
    });
    Compressors compressors = NewCompressors(*codec_, ranks, length, false);
    (void)Reduced(encoded, compressors, Arrays(n, std::vector<float>(length, 1)));
    const auto sent = [&](const Meshes& meshes, int rank) {
      std::uint64_t bytes = 0;
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer != rank) bytes += meshes[rank]->traffic(peer).payload_sent;
      }
      return bytes;
    };
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(sent(encoded, rank), 2 * (n - 1) * codec_->MaxBytes(length / n));
      const std::uint64_t of_ring = sent(ring, rank);
      EXPECT_EQ(sent(encoded, rank), codec_->lossless() ? of_ring : of_ring / 2);
    }
  }
}

// Gradients whose low bits no 16-bit format holds, the same in every step: with error feedback the
// sums of many steps are exact, without it (the control) each step loses the same again.
TEST_P(CloseEncodedAllreduceTest, SumsOfManyStepsDriftWithoutErrorFeedbackAndNotWithIt) {
  constexpr int kRanks = 3, kSteps = 200;
  constexpr std::size_t kLength = 7;
  for (const bool feedback : {false, true}) {
    Members members(Kind::kInproc, kRanks);
    const Meshes meshes = members.OpenAll(1);
    Compressors compressors = NewCompressors(*codec_, kRanks, kLength, feedback);
    std::vector<double> total(kLength);
    Arrays given(kRanks, std::vector<float>(kLength));
    for (int rank = 0; rank < kRanks; ++rank) {
      std::ranges::fill(given[rank], 1.0F / static_cast<float>(3 + 4 * rank));
    }
    for (int step = 1; step <= kSteps; ++step) {
      const Arrays reduced = Reduced(meshes, compressors, given, static_cast<std::uint64_t>(step));
      for (std::size_t i = 0; i < kLength; ++i) total[i] += double{reduced[0][i]};
    }
    const double exact = kSteps * (1.0 / 3 + 1.0 / 7 + 1.0 / 11);
    for (const double sum : total) {
      if (feedback || codec_->lossless()) {
        EXPECT_NEAR(sum, exact, 0.006);
      } else {
        EXPECT_GT(std::abs(sum - exact), 0.01);
      }
    }
  }
}

// Codecs that keep what they lose: at every moment what all have applied and what each still keeps
// is what was given, whatever the codec leaves out. Without error feedback, the control, it is not.
class KeepingEncodedAllreduceTest : public EncodedAllreduceTest {};
INSTANTIATE_TEST_SUITE_P(EachCodec, KeepingEncodedAllreduceTest,
                         ::testing::ValuesIn(KindsThat([](const Codec& codec) {
                           return !codec.unbiased();
                         })),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(KeepingEncodedAllreduceTest, WhatIsAppliedAndWhatIsKeptIsWhatWasGiven) {
  constexpr int kRanks = 3, kSteps = 20;
  const std::vector<std::vector<std::int64_t>> shapes = {{30, 50}, {30}, {10, 30}, {20, 40}};
  constexpr std::size_t kLength = 30 * 50 + 30 + 10 * 30 + 20 * 40;
  for (const bool feedback : {false, true}) {
    Members members(Kind::kInproc, kRanks);
    const Meshes meshes = members.OpenAll(1);
    Compressors compressors;
    for (int rank = 0; rank < kRanks; ++rank) {
      compressors.emplace_back(
          *codec_, kLength,
          compression::CompressorOptions{.error_feedback = feedback,
                                         .layout = compression::Layout(shapes)});
    }
    std::vector<double> difference(kLength);
    for (int step = 1; step <= kSteps; ++step) {
      const Arrays given = Gradients(kRanks, kLength, static_cast<std::uint32_t>(step));
      const Arrays reduced = Reduced(meshes, compressors, given, static_cast<std::uint64_t>(step));
      const std::vector<double> sum = Sum(given);
      for (std::size_t i = 0; i < kLength; ++i) difference[i] += double{reduced[0][i]} - sum[i];
    }
    double worst = 0;
    for (std::size_t i = 0; i < kLength; ++i) {
      for (Compressor& compressor : compressors) {
        if (feedback) difference[i] += double{compressor.residual()[i]};
      }
      worst = std::max(worst, std::abs(difference[i]));
    }
    if (feedback || codec_->lossless()) {
      EXPECT_LT(worst, 2e-4);
    } else {
      EXPECT_GT(worst, 1e-3);
    }
  }
}

// Three ranks become two: what the third had not sent is lost, what the others had is not, for it
// is kept by the element, wherever that is sent now.
TEST_P(KeepingEncodedAllreduceTest, AResidualIsDeliveredWhoeverOwnsItsPart) {
  constexpr std::size_t kLength = 12;
  Compressors compressors = NewCompressors(*codec_, 3, kLength, true);
  const Arrays given(3, std::vector<float>(kLength, 1.0F / 3));
  Members three(Kind::kInproc, 3), two(Kind::kInproc, 2);
  const Meshes before = three.OpenAll(1), after = two.OpenAll(2);
  const Arrays first = Reduced(before, compressors, given);
  std::vector<double> total(kLength);
  for (std::size_t i = 0; i < kLength; ++i) {
    total[i] = double{first[0][i]} + double{compressors[2].residual()[i]};
  }
  compressors.pop_back();
  for (int step = 2; step <= 4; ++step) {
    const Arrays reduced = Reduced(after, compressors, {given[0], given[1]}, step);
    for (std::size_t i = 0; i < kLength; ++i) total[i] += double{reduced[0][i]};
  }
  for (std::size_t i = 0; i < kLength; ++i) {
    for (Compressor& compressor : compressors) total[i] += double{compressor.residual()[i]};
    EXPECT_NEAR(total[i], 3.0, 1e-5) << "one step of three thirds, three of two";
  }
}

// In levels: the sum is that of integers times the scale that all agreed on, whose own summands a
// rank could decode by itself; the rest travels as it is.
class LevelAllreduceTest : public EncodedAllreduceTest {};
INSTANTIATE_TEST_SUITE_P(CodecsWithLevels, LevelAllreduceTest,
                         ::testing::ValuesIn(KindsThat([](const Codec& codec) {
                           return codec.level_sums() != nullptr;
                         })),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(LevelAllreduceTest, TheSumIsThatOfWhatEachHasSent) {
  const std::vector<std::vector<std::int64_t>> shapes = {{30, 50}, {30}, {20, 40}};
  const compression::Layout layout(shapes);
  constexpr std::size_t kLength = 30 * 50 + 30 + 20 * 40;
  const int most = codec_->unbiased() ? 1 : 127;
  for (int ranks = 2; ranks <= 9; ++ranks) {
    Members members(Kind::kInproc, ranks);
    const Meshes meshes = members.OpenAll(1);
    const Arrays given = Gradients(ranks, kLength, static_cast<std::uint32_t>(ranks));
    Compressors compressors;
    for (int rank = 0; rank < ranks; ++rank) {
      compressors.emplace_back(*codec_, kLength, compression::CompressorOptions{.layout = layout});
    }
    const Arrays reduced = Reduced(meshes, compressors, given);
    const std::vector<double> plain = Sum(given);
    std::uint64_t bytes = 0, expected = 0;
    for (int part = 0; part < ranks; ++part) {
      const auto range =
          ranges::PartOf(kLength, static_cast<std::size_t>(part), static_cast<std::size_t>(ranks));
      std::size_t at = range.begin;
      for (const compression::Piece& piece : layout.Cut(range.begin, range.size())) {
        const std::size_t begin = at;
        at += piece.count;
        if (piece.width == 0) {
          expected += 2 * (ranks - 1) * (16 + 4 * piece.count);
          for (std::size_t i = begin; i < at; ++i) ASSERT_NEAR(reduced[0][i], plain[i], 1e-5) << i;
          continue;
        }
        const std::size_t own = most == 1 ? (piece.count + 3) / 4 : piece.count;
        const auto bits = static_cast<std::size_t>(std::bit_width(2U * most * ranks));
        expected += (ranks - 1) * (2 * 16 + 2 * 4 + own + (bits * piece.count + 7) / 8);
        std::vector<float> scales;
        for (int rank = 0; rank < ranks; ++rank) {
          const std::span<const float> values =
              std::span<const float>(given[rank]).subspan(begin, piece.count);
          const auto mine = codec_->level_sums()->Scales({}, values);
          ASSERT_TRUE(mine.ok());
          scales.push_back((*mine)[0]);
        }
        const float scale = std::ranges::max(scales);
        for (std::size_t i = begin; i < at; ++i) {
          const auto level = std::nearbyint(double{reduced[0][i]} / double{scale});
          ASSERT_EQ(static_cast<float>(level) * scale, reduced[0][i]) << i;
          ASSERT_LE(std::abs(level), most * ranks);
          // Each is within one level of what it stands for, or clipped.
          double clipped = 0;
          for (const auto& array : given) {
            clipped += std::clamp(double{array[i]}, -double{scale} * most, double{scale} * most);
          }
          ASSERT_NEAR(level * double{scale}, clipped, ranks * double{scale}) << i;
        }
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(std::memcmp(reduced[rank].data(), reduced[0].data(), kLength * sizeof(float)), 0);
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer != rank) bytes += meshes[rank]->traffic(peer).payload_sent;
      }
    }
    // All but the scales of few pieces, which take a few rounds of their own.
    EXPECT_GT(bytes, expected);
    EXPECT_LE(bytes, expected + 4 * sizeof(float) * (3 + 2 * ranks) * ranks);
  }
}

// One rank's gradient has diverged: all see it.
TEST_P(LevelAllreduceTest, WhatIsNotFiniteReachesAll) {
  constexpr int kRanks = 3;
  constexpr std::size_t kLength = 900;
  Members members(Kind::kInproc, kRanks);
  const Meshes meshes = members.OpenAll(1);
  Arrays given = Gradients(kRanks, kLength, 5);
  given[1][700] = std::numeric_limits<float>::infinity();
  Compressors compressors = NewCompressors(*codec_, kRanks, kLength, false);
  const Arrays reduced = Reduced(meshes, compressors, given);
  for (const auto& array : reduced) EXPECT_TRUE(std::isinf(array[700]));
}

TEST(EncodedAllreduce, TakesCodecsWhoseSizesVary) {
  const SparseCodec codec;
  constexpr int kRanks = 4;
  constexpr std::size_t kLength = 403;
  Members members(Kind::kInproc, kRanks);
  const Meshes meshes = members.OpenAll(1);
  Arrays given = Gradients(kRanks, kLength, 3);
  for (std::size_t i = 0; i < 200; ++i) given[1][i] = 0;
  Compressors compressors = NewCompressors(codec, kRanks, kLength, false);
  const Arrays reduced = Reduced(meshes, compressors, given);
  const std::vector<double> sum = Sum(given);
  for (std::size_t i = 0; i < kLength; ++i) ASSERT_NEAR(reduced[2][i], sum[i], 1e-5);
}

TEST(EncodedAllreduce, BytesThatAreNotTheCodecsEndTheCall) {
  const RefusingCodec codec;
  Members members(Kind::kInproc, 2);
  const Meshes meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    Compressor compressor(codec, 10, false);
    Workspace workspace;
    std::vector<float> data(10, 1);
    EXPECT_EQ(EncodedAllreduce({*meshes[rank], kTag, Soon(), workspace}, compressor, 1, 0, data)
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace starling::collectives
