// SPDX-License-Identifier: Apache-2.0
// A codec stands between a tensor and the bytes in which it travels. Every exchange has the same
// ones: a gradient is encoded once, by who sends it, and decoded once, by who adds it up.
//
// A codec has no state and knows no peer. What it loses may be kept and sent later: that is error
// feedback (compressor.h), which goes with any codec. Bytes come from peers, so Decode believes
// nothing that it can check: what is cut off, too long or not aligned gives a status. They tell all
// that decoding needs: the job's settings of a codec (density, threshold) are the encoder's alone.
//
// To add a codec: a source file with a Codec, or with a TensorCodec (tensor_codec.h) where numbers
// of one tensor are encoded together; a line in the table of codec.cc; a line in the table of
// codec_test.cc that says what it promises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/buffer/buffer.h"
#include "trainer/compression/layout.h"

namespace starling::v1alpha1 {
class Codec;
}  // namespace starling::v1alpha1

namespace starling::compression {

// How numbers of several members are added up that travel encoded.
enum class Summing {
  kByOwners,  // a part has an owner, who decodes all, encodes the sum and sends it: two encodings
  kByAll,     // everybody gets what everybody has encoded, and adds it up: for what is sparse, and
              // for what must not be encoded twice
  kInLevels,  // by owners, but members agree on scales first, so that what an owner gets are
              // integers: it adds them up as they are (LevelSums), and encodes nothing
};

// What an encoding goes by beside the numbers.
struct Manner {
  // What the numbers are of, one piece after another, all of them. None: one tensor, one row.
  std::span<const Piece> pieces = {};
  // Of codecs that draw: another one, another draw.
  std::uint64_t draw = 0;
  // Of codecs that choose: at least this share of the numbers, whatever the job's density.
  double least_density = 0;
  // Of codecs with level sums: that of each piece, as LevelSums::Scales has them. None: each
  // piece's own.
  std::span<const float> scales = {};
};

// Sums of encodings that are not decoded: integer multiples, *levels*, of scales that all have in
// common. Exactly the sum of what each stands for, whatever the order.
class LevelSums {
 public:
  virtual ~LevelSums() = default;

  // The scales that these numbers ask for, one for each piece: that of several members is the
  // largest of theirs. Infinite for what travels as it is.
  virtual absl::StatusOr<std::vector<float>> Scales(const Manner& manner,
                                                    buffer::ConstView values) const = 0;
  // Adds up encodings of `count` numbers each, at least one, that were made with the same pieces
  // and scales: the sum is written to the beginning of `bytes`, which hold Codec::MaxBytes(count);
  // how many were. INVALID_ARGUMENT for what is no such encoding.
  virtual absl::StatusOr<std::size_t> Add(std::span<const std::span<const std::byte>> encodings,
                                          std::size_t count, std::span<std::byte> bytes) const = 0;
  // Fills `values` from the sum of so many encodings. As Codec::Decode.
  virtual absl::Status Decode(std::span<const std::byte> bytes, int summands,
                              buffer::View values) const = 0;
};

// Thread-safe: immutable.
class Codec {
 public:
  virtual ~Codec() = default;

  // The bytes that `count` numbers are encoded to; of a codec whose sizes vary, the most.
  virtual std::size_t MaxBytes(std::size_t count) const = 0;
  // Whether that is always the size: then no length needs to travel.
  virtual bool fixed_size() const { return true; }
  // Whether what is decoded has the bits of what was encoded.
  virtual bool lossless() const { return false; }
  // Whether each number that is decoded is close to what it was: then weights may be read so.
  virtual bool close() const { return true; }
  // Whether it sends a share of the numbers, which Manner::least_density may raise.
  virtual bool chooses() const { return false; }
  // Whether a long tensor may be encoded a stretch after the other, each by itself, as if they were
  // several: then all that is done with one is done while it is in the cache.
  virtual bool by_tiles() const { return fixed_size(); }
  // Whether it is right on average by itself: it draws, and what it loses is not to be kept, for
  // then it would grow.
  virtual bool unbiased() const { return false; }
  virtual Summing summing() const { return Summing::kByOwners; }
  // Not null with Summing::kInLevels. It lives as long as this.
  virtual const LevelSums* level_sums() const { return nullptr; }

  // Writes `values`, F32 on the CPU, to the beginning of `bytes`, which hold at least
  // MaxBytes(values.size()), or what is left of that much for all numbers of which these are a
  // stretch, behind those before them; how many were written. INVALID_ARGUMENT for other types and
  // for too little room. Equal values give equal bytes.
  virtual absl::StatusOr<std::size_t> Encode(buffer::ConstView values,
                                             std::span<std::byte> bytes) const = 0;
  // The same, where the manner matters.
  virtual absl::StatusOr<std::size_t> EncodeIn(const Manner& /*manner*/, buffer::ConstView values,
                                               std::span<std::byte> bytes) const {
    return Encode(values, bytes);
  }
  // Fills `values`, F32 on the CPU, from all of `bytes`, which begin at a multiple of 8.
  // INVALID_ARGUMENT if they do not stand for so many numbers; then `values` are unspecified.
  virtual absl::Status Decode(std::span<const std::byte> bytes, buffer::View values) const = 0;
};

// Each makes the codec with the settings of its message in `spec`, by default the field's own.
using NewCodec = std::unique_ptr<Codec>(const v1alpha1::Codec& spec);

// Sends numbers as they are.
NewCodec NewIdentityCodec;
// 16 bits for each number: see buffer/number_format.h for what is kept, and what becomes of numbers
// that the format cannot hold.
NewCodec NewBFloat16Codec, NewFloat16Codec;
// One bit for each number, and two means for each row (Seide et al. 2014).
NewCodec NewOneBitCodec;
// The largest numbers: gradient dropping, deep gradient compression, shares by entropy.
NewCodec NewTopKCodec, NewDeepGradientCompressionCodec, NewEntropyTopKCodec;
// Numbers beyond a threshold, as it (Strom 2015).
NewCodec NewThresholdCodec;
// Signs times a scale, or 0, by chance (Wen et al. 2017).
NewCodec NewTernGradCodec;
// A byte for each number, on a scale of even steps and on one of even factors.
NewCodec NewInt8Codec, NewLogarithmicCodec;
// The most positive or the most negative numbers, as their mean (Sattler et al. 2019).
NewCodec NewSparseBinaryCodec;

// All codecs. A codec's name is the name of its field in spec.compression.codec; its place in the
// table is its number on the wire.
struct CodecKind {
  std::string_view name;
  NewCodec* make;
};
std::span<const CodecKind> CodecKinds();

using CodecNumber = std::uint8_t;
inline constexpr CodecNumber kIdentity = 0;

// INVALID_ARGUMENT for a number, or a name, of none: the peer, or the job, is of another version.
// What is found has default settings: it decodes what any other of its kind has encoded.
absl::StatusOr<const Codec*> FindCodec(CodecNumber number);
absl::StatusOr<CodecNumber> CodecNumberOf(std::string_view name);
// That of spec.compression.codec; `identity` where it is not given.
absl::StatusOr<CodecNumber> CodecNumberOf(const v1alpha1::Codec& codec);
// The same, with the job's settings.
absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const v1alpha1::Codec& codec);
// Of its momentum correction (compressor.h), where it has that.
std::optional<double> MomentumOf(const v1alpha1::Codec& codec);
// What weights are read in where changes are encoded by this one: itself if it is close.
absl::StatusOr<CodecNumber> CodecNumberOfReads(const v1alpha1::Codec& codec);

// As Encode, to a text of just the right size.
absl::StatusOr<std::string> EncodeText(const Codec& codec, buffer::ConstView values);

}  // namespace starling::compression
