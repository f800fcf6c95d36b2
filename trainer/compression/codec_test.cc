// SPDX-License-Identifier: Apache-2.0
// The contract of codecs: every one in the table is asked all of this.
#include "trainer/compression/codec.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "starling/v1alpha1/training_job.pb.h"

namespace starling::compression {
namespace {

// What a codec promises. A new codec gets a line here, and one without a line fails.
struct Promise {
  std::string_view name;
  std::size_t bytes_of_thousand;  // numbers, at most
  double relative_error = 0;      // of numbers between 1e-4 and 1e4; of close ones
};
// Those that encode tensors have a head of 16 bytes; here one row is all.
constexpr Promise kPromises[] = {{"identity", 4000, 0},
                                 {"bfloat16", 2000, 1.0 / 256},
                                 {"float16", 2000, 1.0 / 2048},
                                 {"oneBit", 16 + 8 + 4 * 32},
                                 {"topK", 16 + 8 * 13},
                                 {"ternGrad", 16 + 4 + 250},
                                 {"int8", 16 + 4 + 1000},
                                 {"threshold", 16 + 4 + 4 * 13},
                                 {"deepGradientCompression", 16 + 8},
                                 {"sparseBinary", 16 + 9 + 11},
                                 {"entropyTopK", 16 + 8},
                                 {"logarithmic", 16 + 2 + 1000}};

class CodecContract : public ::testing::TestWithParam<CodecKind> {
 protected:
  const Promise& promise() const {
    for (const Promise& one : kPromises) {
      if (one.name == GetParam().name) return one;
    }
    ADD_FAILURE() << "codec " << GetParam().name << " has no line in kPromises";
    return kPromises[0];
  }
  const std::unique_ptr<Codec> codec_ = GetParam().make({});

  std::vector<std::byte> Encoded(const std::vector<float>& values) const {
    std::vector<std::byte> bytes(codec_->MaxBytes(values.size()));
    const auto size = codec_->Encode(values, bytes);
    EXPECT_TRUE(size.ok()) << size.status();
    EXPECT_LE(size.value_or(0), bytes.size());
    bytes.resize(size.value_or(0));
    return bytes;
  }
  std::vector<float> Decoded(std::span<const std::byte> bytes, std::size_t count) const {
    std::vector<float> values(count, 77);
    const absl::Status status = codec_->Decode(bytes, values);
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, CodecContract, ::testing::ValuesIn(CodecKinds()),
                         [](const auto& one) { return std::string(one.param.name); });

// Of 0.5: logarithmic numbers round.
auto IsNearHalf() { return ::testing::FloatNear(0.5F, 0.5F * 0.0443F); }

std::vector<float> Gradient(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> exponent(-4, 4);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::pow(10.0F, exponent(random)) * (random() % 2 == 0 ? 1.0F : -1.0F);
  }
  return values;
}

TEST_P(CodecContract, TakesTheBytesThatItSaysAndLosesNoMoreThanItSays) {
  const std::vector<float> values = Gradient(1000, 1);
  const std::vector<std::byte> bytes = Encoded(values);
  EXPECT_LE(bytes.size(), promise().bytes_of_thousand);
  if (codec_->fixed_size()) {
    EXPECT_EQ(bytes.size(), codec_->MaxBytes(1000));
  }
  const std::vector<float> decoded = Decoded(bytes, 1000);
  bool same = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (codec_->close()) {
      EXPECT_LE(std::abs(decoded[i] - values[i]), promise().relative_error * std::abs(values[i]));
    }
    same = same && decoded[i] == values[i];
  }
  EXPECT_EQ(same, codec_->lossless());
}

TEST_P(CodecContract, EqualValuesGiveEqualBytesAndWhatWasDecodedEncodesToTheSame) {
  const std::vector<float> values = Gradient(333, 2);
  const std::vector<std::byte> bytes = Encoded(values);
  EXPECT_EQ(Encoded(values), bytes);
  if (codec_->close()) {
    EXPECT_EQ(Encoded(Decoded(bytes, 333)), bytes);
  }
}

TEST_P(CodecContract, AnyLengthGoesThereAndBack) {
  for (std::size_t count = 0; count < 70; ++count) {
    const std::vector<float> values(count, 0.5F);
    const std::vector<float> decoded = Decoded(Encoded(values), count);
    if (codec_->close()) {
      EXPECT_EQ(decoded, values) << count;
    }
    for (const float value : decoded) EXPECT_THAT(value, ::testing::AnyOf(0, 0.5F, IsNearHalf()));
  }
}

TEST_P(CodecContract, WhatIsFiniteStaysFiniteAndWhatIsNotIsSeen) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {std::numeric_limits<float>::max(),
                                     std::numeric_limits<float>::lowest(),
                                     std::numeric_limits<float>::denorm_min(),
                                     kInfinity,
                                     -kInfinity,
                                     std::nanf("")};
  const std::vector<float> decoded = Decoded(Encoded(values), values.size());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isfinite(decoded[i])) << decoded[i];
  EXPECT_GT(decoded[0], 0);
  EXPECT_LT(decoded[1], 0);
  for (int i = 3; i < 6; ++i) EXPECT_FALSE(std::isfinite(decoded[i])) << decoded[i];
}

TEST_P(CodecContract, BytesThatAreCutOffOrTooLongAreRefused) {
  const std::vector<std::byte> bytes = Encoded(Gradient(50, 3));
  std::vector<float> values(50);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(codec_->Decode(std::span(bytes).first(size), values).code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(codec_->Decode(longer, values).code(), absl::StatusCode::kInvalidArgument);
}

// Bits of an encoding are turned over, one or several: what is refused is so by the codec's name.
TEST_P(CodecContract, ForgedBytesGiveNumbersOrAStatusThatNamesTheCodec) {
  std::mt19937 random(9);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes =
        Encoded(Gradient(100 + round % 200, static_cast<unsigned>(round)));
    const std::size_t count = 100 + round % 200;
    for (std::size_t flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << random() % 8);
    }
    std::vector<float> values(count);
    const absl::Status status = codec_->Decode(bytes, values);
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(std::string(GetParam().name)));
  }
  EXPECT_EQ(refused > 0, !codec_->fixed_size());
}

TEST_P(CodecContract, AnyBytesGiveNumbersOrAStatus) {
  std::mt19937 random(4);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    // Just the right length, more often than chance would have it.
    const std::size_t count =
        random() % 2 == 0 ? random() % 100 : bytes.size() / codec_->MaxBytes(1);
    std::vector<float> values(count);
    (void)codec_->Decode(bytes, values);
  }
}

TEST_P(CodecContract, TooLittleRoomAndOtherTypesAreRefused) {
  const std::vector<float> values = Gradient(10, 5);
  std::vector<std::byte> bytes(codec_->MaxBytes(10));
  // A head is more than the numbers as they are.
  const std::size_t few = codec_->fixed_size() ? bytes.size() - 1 : std::span(values).size_bytes();
  EXPECT_EQ(codec_->Encode(values, std::span(bytes).first(few)).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::vector<double> doubles(10);
  EXPECT_EQ(codec_->Encode(doubles, bytes).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(codec_->Decode(bytes, doubles).code(), absl::StatusCode::kInvalidArgument);
  const buffer::View remote(buffer::DType::kF32, buffer::Device::kCuda, nullptr, 10);
  EXPECT_EQ(codec_->Encode(remote, bytes).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(codec_->Decode(bytes, remote).code(), absl::StatusCode::kUnimplemented);
}

// What a job may ask for this build can do.
TEST(Codecs, AreThoseOfTheJobFile) {
  const auto* kinds = v1alpha1::Codec::descriptor()->oneof_decl(0);
  ASSERT_EQ(kinds->field_count(), static_cast<int>(CodecKinds().size()));
  for (int i = 0; i < kinds->field_count(); ++i) {
    EXPECT_TRUE(CodecNumberOf(kinds->field(i)->json_name()).ok()) << kinds->field(i)->json_name();
  }
}

TEST(Codecs, AreFoundByNameAndByNumber) {
  ASSERT_EQ(*CodecNumberOf("identity"), kIdentity);
  for (const CodecKind& kind : CodecKinds()) {
    const auto number = CodecNumberOf(kind.name);
    ASSERT_TRUE(number.ok()) << number.status();
    const auto codec = FindCodec(*number);
    ASSERT_TRUE(codec.ok()) << codec.status();
    EXPECT_EQ((*codec)->MaxBytes(10), kind.make({})->MaxBytes(10));
  }
  v1alpha1::Codec spec;
  EXPECT_EQ(*CodecNumberOf(spec), kIdentity);
  spec.mutable_float16();
  EXPECT_EQ(*CodecNumberOf(spec), *CodecNumberOf("float16"));
  EXPECT_EQ(CodecNumberOf("zip").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FindCodec(255).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace starling::compression
