// SPDX-License-Identifier: Apache-2.0
// A byte for each number, and a scale for each tensor: a float, then the levels from -127 to 127.
// The scale is the one of least squared error, or nearly so: Newton's iteration for the best
// magnitude to clip at (Sakr et al. 2022, "Optimal Clipping and Magnitude-aware Differentiation")
// on a sample, if what it finds loses less than no clipping does.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "trainer/compression/tensor_codec.h"
#include "trainer/kernels/magnitudes.h"
#include "trainer/kernels/quantise.h"

namespace starling::compression {
namespace {

using kernels::kLargestInt8;

// Where to clip `values`, whose largest magnitude is `largest`.
float BestClip(std::span<const float> values, float largest) {
  constexpr std::size_t kSample = 4096;
  constexpr int kIterations = 8;
  // The squared error of rounding to steps of c / 127 is a twelfth of the step's square.
  constexpr double kRounding = 1.0 / (12 * kLargestInt8 * kLargestInt8);
  double clip = 0, count = 0;
  const std::size_t stride = std::max<std::size_t>(1, values.size() / kSample);
  for (std::size_t i = 0; i < values.size(); i += stride, count += 1) clip += std::abs(values[i]);
  clip *= 4 / count;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    double beyond = 0, beyond_sum = 0;
    for (std::size_t i = 0; i < values.size(); i += stride) {
      const double magnitude = std::abs(values[i]);
      if (magnitude <= clip) continue;
      beyond += 1;
      beyond_sum += magnitude;
    }
    if (beyond == 0) break;
    clip = beyond_sum / (kRounding * (count - beyond) + beyond);
  }
  return std::min(largest, static_cast<float>(clip));
}

class Int8Codec final : public TensorCodec {
 public:
  // As many bytes for any number of ranks; the sum is rounded once more.
  Summing summing() const override { return Summing::kByOwners; }
  std::size_t MaxBytes(const Piece& piece, const PieceManner& /*manner*/) const override {
    return sizeof(float) + piece.count;
  }

  std::size_t Encode(std::span<const float> values, const Piece& piece,
                     const PieceManner& /*manner*/, std::span<std::byte> bytes) const override {
    const float scale = ScaleOf(values);
    Store(scale, bytes, 0);
    const std::span levels(reinterpret_cast<std::int8_t*>(bytes.data() + sizeof scale),
                           values.size());
    if (scale > 0) {
      kernels::QuantiseInt8(values, scale, levels);
    } else {
      std::ranges::fill(levels, std::int8_t{0});
    }
    return sizeof scale + piece.count;
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Piece& piece,
                      std::span<float> values) const override {
    if (bytes.size() != MaxBytes(piece, {})) return absl::OutOfRangeError("it has another size");
    const auto scale = Load<float>(bytes, 0);
    // Times 128, which is a level too.
    if (!(scale >= 0 && scale < FLT_MAX / 128)) return absl::OutOfRangeError("its scale is none");
    kernels::DequantiseInt8(
        {reinterpret_cast<const std::int8_t*>(bytes.data() + sizeof scale), values.size()}, scale,
        values);
    return absl::OkStatus();
  }

 private:
  // 0 where all numbers are 0, or so small that a scale could not be divided by.
  static float ScaleOf(std::span<const float> values) {
    const float largest = kernels::LargestMagnitude(values);
    const float whole = largest / kLargestInt8;
    const float clipped = BestClip(values, largest) / kLargestInt8;
    if (clipped < FLT_MIN) return whole < FLT_MIN ? 0 : whole;
    if (clipped >= whole) return whole;
    return kernels::Int8Error(values, clipped) < kernels::Int8Error(values, whole) ? clipped
                                                                                   : whole;
  }
};

}  // namespace

std::unique_ptr<Codec> NewInt8Codec(const v1alpha1::Codec&) {
  return NewPiecewiseCodec("int8", std::make_unique<Int8Codec>());
}

}  // namespace starling::compression
