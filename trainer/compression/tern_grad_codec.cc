// SPDX-License-Identifier: Apache-2.0
// TernGrad (Wen et al. 2017): a tensor is clipped at so many of its standard deviations, its
// largest magnitude is s, and each number becomes s with its sign, with probability its magnitude /
// s, or 0: on average itself, so that nothing has to be kept for later. A float, s, then four
// numbers a byte, the first in the lowest two bits: 0 for -s, 1 for 0, 2 for s; what is spare is 0.
#include <algorithm>
#include <cmath>

#include "common/random/philox.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/compression/tensor_codec.h"
#include "trainer/kernels/span_math.h"

namespace starling::compression {
namespace {

constexpr std::size_t kPerByte = 4;
constexpr unsigned kCodeBits = 2, kCodeMask = 3, kZero = 1;

class TernGradCodec final : public TensorCodec {
 public:
  // No clipping for 0.
  explicit TernGradCodec(double clip_sigma) : clip_sigma_(clip_sigma) {}

  bool unbiased() const override { return true; }
  std::size_t MaxBytes(const Piece& piece, const PieceManner& /*manner*/) const override {
    return sizeof(float) + (piece.count + kPerByte - 1) / kPerByte;
  }

  std::size_t Encode(std::span<const float> values, const Piece& piece, const PieceManner& manner,
                     std::span<std::byte> bytes) const override {
    const float clip = ClipOf(values);
    float scale = 0;
    for (const float value : values) scale = std::max(scale, std::min(std::abs(value), clip));
    Store(scale, bytes, 0);
    // A draw of 32 bits is below this share of them with the number's probability.
    const double share = scale > 0 ? 0x1p32 / double{scale} : 0;
    const random::Block key = random::Philox4x32(
        {static_cast<std::uint32_t>(manner.draw), static_cast<std::uint32_t>(manner.draw >> 32)},
        {});
    for (std::size_t i = 0; i < values.size(); i += kPerByte) {
      const random::Block draws = random::Philox4x32(
          {static_cast<std::uint32_t>(i / kPerByte), key[2], key[3]}, {key[0], key[1]});
      unsigned byte = 0;
      for (std::size_t j = 0; j < kPerByte && i + j < values.size(); ++j) {
        const float value = values[i + j];
        const double magnitude = std::min(std::abs(value), clip);
        const bool is_sent = static_cast<double>(draws[j]) < magnitude * share;
        const unsigned code = !is_sent ? kZero : value < 0 ? 0 : 2;
        byte |= code << kCodeBits * j;
      }
      bytes[sizeof scale + i / kPerByte] = static_cast<std::byte>(byte);
    }
    return MaxBytes(piece, manner);
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Piece& piece,
                      std::span<float> values) const override {
    if (bytes.size() != MaxBytes(piece, {})) return absl::OutOfRangeError("it has another size");
    const auto scale = Load<float>(bytes, 0);
    if (!std::isfinite(scale) || scale < 0) return absl::OutOfRangeError("its scale is none");
    const float numbers[] = {-scale, 0, scale, std::nanf("")};
    bool known = true;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto byte = std::to_integer<unsigned>(bytes[sizeof scale + i / kPerByte]);
      const unsigned code = byte >> kCodeBits * (i % kPerByte) & kCodeMask;
      known = known && code != kCodeMask;
      values[i] = numbers[code];
    }
    const std::size_t used = piece.count % kPerByte;
    known =
        known && (used == 0 || std::to_integer<unsigned>(bytes.back()) >> kCodeBits * used == 0);
    return known ? absl::OkStatus() : absl::OutOfRangeError("a code is none of the three");
  }

 private:
  float ClipOf(std::span<const float> values) const {
    if (clip_sigma_ == 0) return HUGE_VALF;
    const auto count = static_cast<double>(values.size());
    const double mean = kernels::Sum(values) / count;
    const double variance = kernels::SumOfSquares(values) / count - mean * mean;
    return variance > 0 ? static_cast<float>(clip_sigma_ * std::sqrt(variance)) : HUGE_VALF;
  }

  const double clip_sigma_;
};

}  // namespace

std::unique_ptr<Codec> NewTernGradCodec(const v1alpha1::Codec& spec) {
  constexpr double kClipSigma = 2.5;
  const v1alpha1::TernGradCodec& given = spec.tern_grad();
  return NewPiecewiseCodec(
      "ternGrad",
      std::make_unique<TernGradCodec>(given.has_clip_sigma() ? given.clip_sigma() : kClipSigma));
}

}  // namespace starling::compression
