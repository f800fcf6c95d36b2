// SPDX-License-Identifier: Apache-2.0
// Codecs for which numbers of one tensor belong together: what a piece of a tensor becomes
// (TensorCodec), and how pieces follow one another on the wire, which is the same for all.
//
// An encoding is its pieces, one after another, each with a head of 16 bytes: how many numbers it
// stands for, how many bytes follow, the width of a row and what is there of the first one. A piece
// of width 0 has its numbers as they are: those that the layout says so of, those that would not be
// shorter encoded, and those of which some number is not finite, so that a run that has diverged is
// seen. So a codec is asked for finite numbers alone.
//
// The sum of several encodings (LevelSums) has the same heads. What follows one is a float, the
// scale, and the levels, each in as few bits as the largest sum needs (levels.h).
//
// To add one: a TensorCodec in a source file, made by NewPiecewiseCodec; see codec.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/compression/codec.h"

namespace starling::compression {

inline constexpr std::size_t kPieceHeadBytes = 16;

// How one piece is to be encoded.
struct PieceManner {
  std::uint64_t draw = 0;
  double density = 0;  // of what the codec chooses by: see TensorCodec::Densities
  std::optional<float> scale = std::nullopt;  // of codecs that have levels; none: the piece's own
};

// Thread-safe: immutable. Bytes begin anywhere.
class TensorCodec {
 public:
  virtual ~TensorCodec() = default;

  virtual Summing summing() const { return Summing::kByAll; }
  virtual bool close() const { return false; }
  virtual bool chooses() const { return false; }
  virtual bool by_tiles() const { return false; }
  virtual bool unbiased() const { return false; }
  // The share of its numbers that each piece keeps, where the codec chooses; at least `least`.
  virtual std::vector<double> Densities(std::span<const Piece> pieces,
                                        std::span<const float> /*values*/, double least) const {
    return std::vector<double>(pieces.size(), least);
  }

  // Where members share scales (LevelSums), numbers become levels from -levels() to levels(), times
  // a scale, which are the first bytes of the encoding, a float. 0: they do not.
  virtual int levels() const { return 0; }
  // The scale that finite numbers ask for: any larger one suits them too.
  virtual float ScaleOf(std::span<const float> /*values*/) const { return 0; }
  // Adds those that `bytes` hold to `sums`. Believes nothing, as Decode.
  virtual absl::Status AddLevels(std::span<const std::byte> /*bytes*/, const Piece& /*piece*/,
                                 std::span<std::int32_t> /*sums*/) const {
    return absl::OutOfRangeError("it has no levels");
  }

  // The most bytes that it becomes.
  virtual std::size_t MaxBytes(const Piece& piece, const PieceManner& manner) const = 0;
  // `values` are finite, and `bytes` has room; how many were written.
  virtual std::size_t Encode(std::span<const float> values, const Piece& piece,
                             const PieceManner& manner, std::span<std::byte> bytes) const = 0;
  // Believes nothing. OUT_OF_RANGE with what is wrong, which the caller makes an error of.
  virtual absl::Status Decode(std::span<const std::byte> bytes, const Piece& piece,
                              std::span<float> values) const = 0;
};

// `name` is the codec's, for errors.
std::unique_ptr<Codec> NewPiecewiseCodec(std::string name, std::unique_ptr<TensorCodec> codec);

// Numbers of bytes that begin anywhere.
template <typename T>
T Load(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <typename T>
void Store(T value, std::span<std::byte> bytes, std::size_t at) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

}  // namespace starling::compression
