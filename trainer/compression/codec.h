// SPDX-License-Identifier: Apache-2.0
// A codec stands between a tensor and the bytes in which it travels. Every exchange has the same
// ones: a gradient is encoded once, by who sends it, and decoded once, by who adds it up.
//
// A codec has no state and knows no peer. What it loses may be kept and sent later: that is error
// feedback (compressor.h), which goes with any codec. Bytes come from peers, so Decode believes
// nothing that it can check: what is cut off, too long or not aligned gives a status.
//
// To add a codec: a source file with a Codec and its factory, a line in the table of codec.cc, a
// line in the table of codec_test.cc that says what it promises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/buffer/buffer.h"

namespace starling::v1alpha1 {
class Codec;
}  // namespace starling::v1alpha1

namespace starling::compression {

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

  // Writes `values`, F32 on the CPU, to the beginning of `bytes`, which hold at least
  // MaxBytes(values.size()); how many were written. INVALID_ARGUMENT for other types and for too
  // little room. Equal values give equal bytes.
  virtual absl::StatusOr<std::size_t> Encode(buffer::ConstView values,
                                             std::span<std::byte> bytes) const = 0;
  // Fills `values`, F32 on the CPU, from all of `bytes`, which begin at a multiple of 8.
  // INVALID_ARGUMENT if they do not stand for so many numbers; then `values` are unspecified.
  virtual absl::Status Decode(std::span<const std::byte> bytes, buffer::View values) const = 0;
};

// Sends numbers as they are.
std::unique_ptr<Codec> NewIdentityCodec();
// 16 bits for each number: see buffer/number_format.h for what is kept, and what becomes of numbers
// that the format cannot hold.
std::unique_ptr<Codec> NewBFloat16Codec();
std::unique_ptr<Codec> NewFloat16Codec();

// All codecs. A codec's name is the name of its field in spec.compression.codec; its place in the
// table is its number on the wire.
struct CodecKind {
  std::string_view name;
  std::unique_ptr<Codec> (*make)();
};
std::span<const CodecKind> CodecKinds();

using CodecNumber = std::uint8_t;
inline constexpr CodecNumber kIdentity = 0;

// INVALID_ARGUMENT for a number, or a name, of none: the peer, or the job, is of another version.
absl::StatusOr<const Codec*> FindCodec(CodecNumber number);
absl::StatusOr<CodecNumber> CodecNumberOf(std::string_view name);
// That of spec.compression.codec; `identity` where it is not given.
absl::StatusOr<CodecNumber> CodecNumberOf(const v1alpha1::Codec& codec);

// As Encode, to a text of just the right size.
absl::StatusOr<std::string> EncodeText(const Codec& codec, buffer::ConstView values);

}  // namespace starling::compression
