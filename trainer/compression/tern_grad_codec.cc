// SPDX-License-Identifier: Apache-2.0
// TernGrad (Wen et al. 2017): a tensor is clipped at so many of its standard deviations, its
// largest magnitude is s, and each number becomes s with its sign, with probability its magnitude /
// s, or 0: on average itself, so that nothing has to be kept for later. A float, s, then four
// numbers a byte (kernels/ternary.h).
#include <algorithm>
#include <cmath>

#include "common/random/philox.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/compression/tensor_codec.h"
#include "trainer/kernels/magnitudes.h"
#include "trainer/kernels/span_math.h"
#include "trainer/kernels/ternary.h"

namespace starling::compression {
namespace {

class TernGradCodec final : public TensorCodec {
 public:
  // No clipping for 0.
  TernGradCodec(double clip_sigma, bool shares_scales)
      : clip_sigma_(clip_sigma), shares_scales_(shares_scales) {}

  bool by_tiles() const override { return true; }
  bool unbiased() const override { return true; }
  std::size_t MaxBytes(const Piece& piece, const PieceManner& /*manner*/) const override {
    return sizeof(float) + kernels::TernaryBytes(piece.count);
  }

  std::size_t Encode(std::span<const float> values, const Piece& piece, const PieceManner& manner,
                     std::span<std::byte> bytes) const override {
    const float clip = ClipOf(values);
    const float scale = manner.scale.value_or(ScaleOf(values, clip));
    Store(scale, bytes, 0);
    const random::Block key = random::Philox4x32(
        {static_cast<std::uint32_t>(manner.draw), static_cast<std::uint32_t>(manner.draw >> 32)},
        {});
    kernels::DrawTernary(values, clip, scale > 0 ? 1 / double{scale} : 0,
                         {.key = {key[0], key[1]}, .counter = {key[2], key[3]}},
                         bytes.subspan(sizeof scale, kernels::TernaryBytes(values.size())));
    return MaxBytes(piece, manner);
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Piece& piece,
                      std::span<float> values) const override {
    if (bytes.size() != MaxBytes(piece, {})) return absl::OutOfRangeError("it has another size");
    const auto scale = Load<float>(bytes, 0);
    if (!std::isfinite(scale) || scale < 0) return absl::OutOfRangeError("its scale is none");
    return Known(kernels::FromTernary(bytes.subspan(sizeof scale), scale, values));
  }

  int levels() const override { return shares_scales_ ? 1 : 0; }
  float ScaleOf(std::span<const float> values) const override {
    return ScaleOf(values, ClipOf(values));
  }
  absl::Status AddLevels(std::span<const std::byte> bytes, const Piece& piece,
                         std::span<std::int32_t> sums) const override {
    if (bytes.size() != MaxBytes(piece, {})) return absl::OutOfRangeError("it has another size");
    return Known(kernels::AddTernary(bytes.subspan(sizeof(float)), sums));
  }

 private:
  static float ScaleOf(std::span<const float> values, float clip) {
    return std::min(kernels::LargestMagnitude(values), clip);
  }
  static absl::Status Known(bool known) {
    return known ? absl::OkStatus() : absl::OutOfRangeError("a code is none of the three");
  }
  float ClipOf(std::span<const float> values) const {
    if (clip_sigma_ == 0) return HUGE_VALF;
    const auto count = static_cast<double>(values.size());
    const double mean = kernels::Sum(values) / count;
    const double variance = kernels::SumOfSquares(values) / count - mean * mean;
    return variance > 0 ? static_cast<float>(clip_sigma_ * std::sqrt(variance)) : HUGE_VALF;
  }

  const double clip_sigma_;
  const bool shares_scales_;
};

}  // namespace

std::unique_ptr<Codec> NewTernGradCodec(const v1alpha1::Codec& spec) {
  constexpr double kClipSigma = 2.5;
  const v1alpha1::TernGradCodec& given = spec.tern_grad();
  return NewPiecewiseCodec("ternGrad", std::make_unique<TernGradCodec>(
                                           given.has_clip_sigma() ? given.clip_sigma() : kClipSigma,
                                           given.shared_scale()));
}

}  // namespace starling::compression
