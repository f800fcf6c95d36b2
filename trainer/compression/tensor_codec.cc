// SPDX-License-Identifier: Apache-2.0
#include "trainer/compression/tensor_codec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/kernels/levels.h"
#include "trainer/kernels/span_math.h"

namespace starling::compression {
namespace {

struct Head {
  std::uint32_t count = 0, bytes = 0, width = 0, first = 0;

  bool operator==(const Head&) const = default;
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

class PiecewiseCodec final : public Codec, private LevelSums {
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
  bool by_tiles() const override { return codec_->by_tiles(); }
  bool unbiased() const override { return codec_->unbiased(); }
  Summing summing() const override {
    return level_sums() != nullptr ? Summing::kInLevels : codec_->summing();
  }
  const LevelSums* level_sums() const override { return codec_->levels() > 0 ? this : nullptr; }

  absl::StatusOr<std::size_t> Encode(buffer::ConstView values,
                                     std::span<std::byte> bytes) const override {
    return EncodeIn({}, values, bytes);
  }
  absl::StatusOr<std::size_t> EncodeIn(const Manner& manner, buffer::ConstView values,
                                       std::span<std::byte> bytes) const override {
    ASSIGN_OR_RETURN(std::span<const float> floats, values.As<float>());
    const std::vector<Piece> pieces = PiecesOf(manner, floats.size());
    if (bytes.size() < floats.size_bytes() + kPieceHeadBytes * pieces.size()) {
      return absl::InvalidArgumentError(absl::StrCat(bytes.size(), " bytes are too few for ",
                                                     floats.size(), " numbers in codec ", name_));
    }
    if (!manner.scales.empty() && manner.scales.size() != pieces.size()) {
      return absl::InvalidArgumentError(absl::StrCat(manner.scales.size(), " scales for ",
                                                     pieces.size(), " pieces in codec ", name_));
    }
    const std::vector<double> densities = codec_->Densities(pieces, floats, manner.least_density);
    std::size_t size = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      PieceManner how{manner.draw + i, densities[i]};
      if (!manner.scales.empty()) how.scale = manner.scales[i];
      size += EncodePiece(floats.first(pieces[i].count), pieces[i], how, bytes.subspan(size));
      floats = floats.subspan(pieces[i].count);
    }
    return size;
  }

  absl::Status Decode(std::span<const std::byte> bytes, buffer::View values) const override {
    ASSIGN_OR_RETURN(std::span<float> floats, values.As<float>());
    return ForEachPiece(bytes, floats,
                        [this](const auto&... piece) { return DecodePiece(piece...); });
  }

 private:
  struct Encoded {
    Head head;
    std::span<const std::byte> body;
  };

  // --- LevelSums.

  absl::StatusOr<std::vector<float>> Scales(const Manner& manner,
                                            buffer::ConstView values) const override {
    ASSIGN_OR_RETURN(std::span<const float> floats, values.As<float>());
    std::vector<float> scales;
    for (const Piece& piece : PiecesOf(manner, floats.size())) {
      const std::span<const float> mine = floats.first(piece.count);
      const bool as_it_is = piece.width == 0 || !kernels::AllFinite(mine);
      scales.push_back(as_it_is ? HUGE_VALF : codec_->ScaleOf(mine));
      floats = floats.subspan(piece.count);
    }
    return scales;
  }

  absl::StatusOr<std::size_t> Add(std::span<const std::span<const std::byte>> encodings,
                                  std::size_t count, std::span<std::byte> bytes) const override {
    std::vector<std::span<const std::byte>> rest(encodings.begin(), encodings.end());
    std::vector<Encoded> pieces(rest.size());
    std::size_t size = 0;
    while (count > 0) {
      for (std::size_t i = 0; i < rest.size(); ++i) {
        ASSIGN_OR_RETURN(pieces[i], TakePiece(rest[i], count));
        if (pieces[i].head != pieces[0].head) return Malformed("members cut their numbers apart");
      }
      ASSIGN_OR_RETURN(const std::size_t written, AddPieces(pieces, bytes.subspan(size)));
      size += written;
      count -= pieces[0].head.count;
    }
    const bool all = std::ranges::all_of(rest, [](const auto& left) { return left.empty(); });
    if (!all) return Malformed("it stands for more numbers");
    return size;
  }

  absl::Status Decode(std::span<const std::byte> bytes, int summands,
                      buffer::View values) const override {
    ASSIGN_OR_RETURN(std::span<float> floats, values.As<float>());
    return ForEachPiece(bytes, floats,
                        [&](const auto&... piece) { return DecodePieceOfSum(summands, piece...); });
  }

  // --- Pieces.

  // The first of `bytes`, which go on behind it; of at most `most` numbers.
  absl::StatusOr<Encoded> TakePiece(std::span<const std::byte>& bytes, std::size_t most) const {
    if (bytes.size() < kPieceHeadBytes) return Malformed("it ends within a head");
    const auto head = Load<Head>(bytes, 0);
    bytes = bytes.subspan(kPieceHeadBytes);
    if (head.count == 0 || head.count > most || head.bytes > bytes.size()) {
      return Malformed("a piece is longer than the rest, or empty");
    }
    const std::span<const std::byte> body = bytes.first(head.bytes);
    bytes = bytes.subspan(head.bytes);
    return Encoded{head, body};
  }

  template <typename DecodeOne>
  absl::Status ForEachPiece(std::span<const std::byte> bytes, std::span<float> floats,
                            const DecodeOne& decode) const {
    while (!bytes.empty()) {
      ASSIGN_OR_RETURN(const Encoded piece, TakePiece(bytes, floats.size()));
      RETURN_IF_ERROR(decode(piece.head, piece.body, floats.first(piece.head.count)));
      floats = floats.subspan(piece.head.count);
    }
    return floats.empty() ? absl::OkStatus() : Malformed("it stands for fewer numbers");
  }

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
    const bool finite = manner.scale ? std::isfinite(*manner.scale) : kernels::AllFinite(values);
    const bool as_it_is =
        piece.width == 0 || !finite || codec_->MaxBytes(piece, manner) >= values.size_bytes();
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
    if (head.width == 0) return TakePlain(head, body, values);
    if (head.first == 0 || head.first > head.width) return Malformed("a first row has no length");
    return Named(codec_->Decode(body, PieceOf(head), values));
  }

  absl::Status TakePlain(const Head& head, std::span<const std::byte> body,
                         std::span<float> values) const {
    if (body.size() != values.size_bytes() || head.first != 0) {
      return Malformed("a piece of plain numbers has another size");
    }
    std::memcpy(values.data(), body.data(), body.size());
    return absl::OkStatus();
  }

  // One of each encoding: their sum.
  absl::StatusOr<std::size_t> AddPieces(std::span<const Encoded> pieces,
                                        std::span<std::byte> bytes) const {
    Head head = pieces[0].head;
    const std::span<std::byte> body = bytes.subspan(kPieceHeadBytes);
    if (head.width == 0) {
      std::vector<float> sum(head.count), one(head.count);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        RETURN_IF_ERROR(TakePlain(head, pieces[i].body, i == 0 ? sum : one));
        if (i > 0) kernels::Add(one, sum);
      }
      std::memcpy(body.data(), sum.data(), head.bytes);
    } else {
      std::vector<std::int32_t> sum(head.count);
      for (const Encoded& piece : pieces) {
        if (piece.body.size() < sizeof(float) ||
            std::memcmp(piece.body.data(), pieces[0].body.data(), sizeof(float)) != 0) {
          return Malformed("members have other scales");
        }
        RETURN_IF_ERROR(Named(codec_->AddLevels(piece.body, PieceOf(head), sum)));
      }
      std::memcpy(body.data(), pieces[0].body.data(), sizeof(float));
      const std::int64_t most = MostOf(pieces.size());
      const std::size_t packed = kernels::PackedBytes(head.count, most);
      kernels::PackLevels(sum, most, body.subspan(sizeof(float), packed));
      head.bytes = static_cast<std::uint32_t>(sizeof(float) + packed);
    }
    Store(head, bytes, 0);
    return kPieceHeadBytes + head.bytes;
  }

  absl::Status DecodePieceOfSum(int summands, const Head& head, std::span<const std::byte> body,
                                std::span<float> values) const {
    if (head.width == 0) return TakePlain(head, body, values);
    if (body.size() < sizeof(float)) return Malformed("a scale is cut off");
    const auto scale = Load<float>(body, 0);
    if (!std::isfinite(scale) || scale < 0) return Malformed("its scale is none");
    std::vector<std::int32_t> levels(values.size());
    if (!kernels::UnpackLevels(body.subspan(sizeof scale),
                               MostOf(static_cast<std::size_t>(summands)), levels)) {
      return Malformed("its levels are none of such a sum");
    }
    kernels::ScaleLevels(levels, scale, values);
    return absl::OkStatus();
  }

  std::int64_t MostOf(std::size_t summands) const {
    return std::int64_t{codec_->levels()} * static_cast<std::int64_t>(summands);
  }
  static Piece PieceOf(const Head& head) { return {head.count, head.width, head.first}; }
  absl::Status Named(const absl::Status& status) const {
    return status.ok() ? status : Malformed(std::string(status.message()));
  }

  const std::string name_;
  const std::unique_ptr<TensorCodec> codec_;
};

}  // namespace

std::unique_ptr<Codec> NewPiecewiseCodec(std::string name, std::unique_ptr<TensorCodec> codec) {
  return std::make_unique<PiecewiseCodec>(std::move(name), std::move(codec));
}

}  // namespace starling::compression
