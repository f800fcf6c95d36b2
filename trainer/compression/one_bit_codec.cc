// SPDX-License-Identifier: Apache-2.0
// 1-bit SGD (Seide et al. 2014, "1-Bit Stochastic Gradient Descent and its Application to
// Data-Parallel Distributed Training of Speech DNNs"): of each number its sign, of each row the
// mean of what is below 0 and of what is not. A row of n numbers is two floats, the lower mean
// first, and ceil(n / 32) words, the lowest bit of the first word first: 28 times less than floats
// for rows of 512.
#include <cmath>

#include "trainer/compression/codec.h"
#include "trainer/compression/tensor_codec.h"
#include "trainer/kernels/sign_bits.h"

namespace starling::compression {
namespace {

constexpr std::size_t kMeansBytes = 2 * sizeof(float);

class OneBitCodec final : public TensorCodec {
 public:
  // An owner encodes the sum once more, with a residual of its own, as in the paper.
  bool by_tiles() const override { return true; }
  Summing summing() const override { return Summing::kByOwners; }

  std::size_t MaxBytes(const Piece& piece, const PieceManner& /*manner*/) const override {
    std::size_t bytes = 0;
    ForEachRow(piece, [&](std::size_t, std::size_t length) {
      bytes += kMeansBytes + kernels::SignWords(length) * sizeof(std::uint32_t);
    });
    return bytes;
  }

  std::size_t Encode(std::span<const float> values, const Piece& piece,
                     const PieceManner& /*manner*/, std::span<std::byte> bytes) const override {
    std::size_t at = 0;
    ForEachRow(piece, [&](std::size_t begin, std::size_t length) {
      const std::span<const float> row = values.subspan(begin, length);
      const kernels::SignMeans means = kernels::MeansBySign(row);
      Store(means.below, bytes, at);
      Store(means.above, bytes, at + sizeof(float));
      at += kMeansBytes;
      kernels::PackSigns(row, bytes.subspan(at));
      at += kernels::SignWords(length) * sizeof(std::uint32_t);
    });
    return at;
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Piece& piece,
                      std::span<float> values) const override {
    if (bytes.size() != MaxBytes(piece, {})) return absl::OutOfRangeError("its rows do not fit");
    bool finite = true;
    std::size_t at = 0;
    ForEachRow(piece, [&](std::size_t begin, std::size_t length) {
      const auto below = Load<float>(bytes, at), above = Load<float>(bytes, at + sizeof(float));
      finite = finite && std::isfinite(below) && std::isfinite(above);
      at += kMeansBytes;
      kernels::UnpackSigns(bytes.subspan(at), {below, above}, values.subspan(begin, length));
      at += kernels::SignWords(length) * sizeof(std::uint32_t);
    });
    return finite ? absl::OkStatus() : absl::OutOfRangeError("a mean is not finite");
  }
};

}  // namespace

std::unique_ptr<Codec> NewOneBitCodec(const v1alpha1::Codec&) {
  return NewPiecewiseCodec("oneBit", std::make_unique<OneBitCodec>());
}

}  // namespace starling::compression
