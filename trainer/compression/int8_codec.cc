// SPDX-License-Identifier: Apache-2.0
// A byte for each number, and a scale for each tensor (kernels::Int8Scale): a float, then the
// levels from -127 to 127.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/compression/tensor_codec.h"
#include "trainer/kernels/quantise.h"

namespace starling::compression {
namespace {

class Int8Codec final : public TensorCodec {
 public:
  explicit Int8Codec(bool shares_scales) : shares_scales_(shares_scales) {}

  bool by_tiles() const override { return true; }
  // As many bytes for any number of ranks; the sum is rounded once more.
  Summing summing() const override { return Summing::kByOwners; }
  std::size_t MaxBytes(const Piece& piece, const PieceManner& /*manner*/) const override {
    return sizeof(float) + piece.count;
  }

  std::size_t Encode(std::span<const float> values, const Piece& piece, const PieceManner& manner,
                     std::span<std::byte> bytes) const override {
    const float scale = manner.scale.value_or(kernels::Int8Scale(values));
    Store(scale, bytes, 0);
    const std::span levels(reinterpret_cast<std::int8_t*>(bytes.data() + sizeof scale),
                           values.size());
    if (scale > 0 && std::isfinite(1 / scale)) {
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

  int levels() const override { return shares_scales_ ? kernels::kLargestInt8 : 0; }
  float ScaleOf(std::span<const float> values) const override { return kernels::Int8Scale(values); }
  absl::Status AddLevels(std::span<const std::byte> bytes, const Piece& piece,
                         std::span<std::int32_t> sums) const override {
    if (bytes.size() != MaxBytes(piece, {})) return absl::OutOfRangeError("it has another size");
    const std::span levels(reinterpret_cast<const std::int8_t*>(bytes.data() + sizeof(float)),
                           sums.size());
    return kernels::AddInt8(levels, sums) ? absl::OkStatus()
                                          : absl::OutOfRangeError("a level is beyond the largest");
  }

 private:
  const bool shares_scales_;
};

}  // namespace

std::unique_ptr<Codec> NewInt8Codec(const v1alpha1::Codec& spec) {
  return NewPiecewiseCodec("int8", std::make_unique<Int8Codec>(spec.int8().shared_scale()));
}

}  // namespace starling::compression
