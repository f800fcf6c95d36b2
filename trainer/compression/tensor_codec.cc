// SPDX-License-Identifier: Apache-2.0
#include "trainer/compression/tensor_codec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/kernels/span_math.h"

namespace starling::compression {
namespace {

struct Head {
  std::uint32_t count = 0, bytes = 0, width = 0, first = 0;
};
static_assert(sizeof(Head) == kPieceHeadBytes);

// Counts of a head have 32 bits.
constexpr std::size_t kLongestPiece = std::size_t{1} << 28;

// Longer ones are cut.
std::vector<Piece> Shortened(std::span<const Piece> pieces) {
  std::vector<Piece> shorter;
  for (Piece piece : pieces) {
    for (; piece.count > kLongestPiece; piece.count -= kLongestPiece) {
      shorter.push_back({kLongestPiece, std::min(piece.width, kLongestPiece),
                         std::min(piece.first, kLongestPiece)});
    }
    piece.width = std::min(piece.width, kLongestPiece);
    piece.first = std::min(piece.first, piece.width);
    shorter.push_back(piece);
  }
  return shorter;
}

class PiecewiseCodec final : public Codec {
 public:
  PiecewiseCodec(std::string name, std::unique_ptr<TensorCodec> codec)
      : name_(std::move(name)), codec_(std::move(codec)) {}

  // A piece takes no more than its numbers do as they are. Between two that are encoded, each of
  // kSmallPiece numbers at least, there is one that is not.
  std::size_t MaxBytes(std::size_t count) const override {
    return count * sizeof(float) + kPieceHeadBytes * (1 + 2 * (count / kSmallPiece + 1));
  }
  bool fixed_size() const override { return false; }
  bool close() const override { return codec_->close(); }
  bool chooses() const override { return codec_->chooses(); }
  bool unbiased() const override { return codec_->unbiased(); }
  Summing summing() const override { return codec_->summing(); }

  absl::StatusOr<std::size_t> Encode(buffer::ConstView values,
                                     std::span<std::byte> bytes) const override {
    return EncodeIn({}, values, bytes);
  }
  absl::StatusOr<std::size_t> EncodeIn(const Manner& manner, buffer::ConstView values,
                                       std::span<std::byte> bytes) const override {
    ASSIGN_OR_RETURN(std::span<const float> floats, values.As<float>());
    if (bytes.size() < MaxBytes(floats.size())) {
      return absl::InvalidArgumentError(absl::StrCat(bytes.size(), " bytes are too few for ",
                                                     floats.size(), " numbers in codec ", name_));
    }
    std::vector<Piece> pieces = PiecesOf(manner, floats.size());
    const std::vector<double> densities = codec_->Densities(pieces, floats, manner.least_density);
    std::size_t size = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const PieceManner how{manner.draw + i, densities[i]};
      size += EncodePiece(floats.first(pieces[i].count), pieces[i], how, bytes.subspan(size));
      floats = floats.subspan(pieces[i].count);
    }
    return size;
  }

  absl::Status Decode(std::span<const std::byte> bytes, buffer::View values) const override {
    ASSIGN_OR_RETURN(std::span<float> floats, values.As<float>());
    while (!bytes.empty()) {
      if (bytes.size() < kPieceHeadBytes) return Malformed("it ends within a head");
      const auto head = Load<Head>(bytes, 0);
      bytes = bytes.subspan(kPieceHeadBytes);
      if (head.count == 0 || head.count > floats.size() || head.bytes > bytes.size()) {
        return Malformed("a piece is longer than the rest, or empty");
      }
      RETURN_IF_ERROR(DecodePiece(head, bytes.first(head.bytes), floats.first(head.count)));
      bytes = bytes.subspan(head.bytes);
      floats = floats.subspan(head.count);
    }
    return floats.empty() ? absl::OkStatus() : Malformed("it stands for fewer numbers");
  }

 private:
  absl::Status Malformed(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("bytes are no encoding of codec ", name_, ": ",
                                                   what,
                                                   "; sender and receiver must be of one version"));
  }

  static std::vector<Piece> PiecesOf(const Manner& manner, std::size_t count) {
    if (!manner.pieces.empty()) return Shortened(manner.pieces);
    if (count == 0) return {};
    return Shortened(std::vector<Piece>{{count, count, count}});
  }

  std::size_t EncodePiece(std::span<const float> values, Piece piece, const PieceManner& manner,
                          std::span<std::byte> bytes) const {
    const bool as_it_is = piece.width == 0 || !kernels::AllFinite(values) ||
                          codec_->MaxBytes(piece, manner) >= values.size_bytes();
    const std::span<std::byte> body = bytes.subspan(kPieceHeadBytes);
    std::size_t size = values.size_bytes();
    if (as_it_is) {
      piece.width = piece.first = 0;
      std::memcpy(body.data(), values.data(), size);
    } else {
      size = codec_->Encode(values, piece, manner, body);
    }
    Store(Head{static_cast<std::uint32_t>(piece.count), static_cast<std::uint32_t>(size),
               static_cast<std::uint32_t>(piece.width), static_cast<std::uint32_t>(piece.first)},
          bytes, 0);
    return kPieceHeadBytes + size;
  }

  absl::Status DecodePiece(const Head& head, std::span<const std::byte> body,
                           std::span<float> values) const {
    if (head.width == 0) {
      if (body.size() != values.size_bytes() || head.first != 0) {
        return Malformed("a piece of plain numbers has another size");
      }
      std::memcpy(values.data(), body.data(), body.size());
      return absl::OkStatus();
    }
    if (head.first == 0 || head.first > head.width) return Malformed("a first row has no length");
    const absl::Status decoded = codec_->Decode(body, {head.count, head.width, head.first}, values);
    return decoded.ok() ? decoded : Malformed(std::string(decoded.message()));
  }

  const std::string name_;
  const std::unique_ptr<TensorCodec> codec_;
};

}  // namespace

std::unique_ptr<Codec> NewPiecewiseCodec(std::string name, std::unique_ptr<TensorCodec> codec) {
  return std::make_unique<PiecewiseCodec>(std::move(name), std::move(codec));
}

}  // namespace starling::compression
