// SPDX-License-Identifier: Apache-2.0
// Each number as a float of 16 bits: half the bytes.
#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/buffer/number_format.h"
#include "trainer/compression/codec.h"

namespace starling::compression {
namespace {

template <typename Number, void (*kEncode)(std::span<const float>, std::span<Number>),
          void (*kDecode)(std::span<const Number>, std::span<float>)>
class SixteenBitCodec final : public Codec {
 public:
  std::size_t MaxBytes(std::size_t count) const override { return count * sizeof(Number); }

  absl::StatusOr<std::size_t> Encode(buffer::ConstView values,
                                     std::span<std::byte> bytes) const override {
    ASSIGN_OR_RETURN(const std::span<const float> floats, values.As<float>());
    if (bytes.size() < MaxBytes(floats.size())) return WrongSize(bytes.size(), floats.size());
    const buffer::View room(buffer::kTypeOf<Number>, buffer::Device::kCpu, bytes.data(),
                            floats.size());
    ASSIGN_OR_RETURN(const std::span<Number> numbers, room.template As<Number>());
    kEncode(floats, numbers);
    return numbers.size_bytes();
  }
  absl::Status Decode(std::span<const std::byte> bytes, buffer::View values) const override {
    ASSIGN_OR_RETURN(const std::span<float> floats, values.As<float>());
    if (bytes.size() != MaxBytes(floats.size())) return WrongSize(bytes.size(), floats.size());
    const buffer::ConstView given(buffer::kTypeOf<Number>, buffer::Device::kCpu, bytes.data(),
                                  floats.size());
    ASSIGN_OR_RETURN(const std::span<const Number> numbers, given.template As<Number>());
    kDecode(numbers, floats);
    return absl::OkStatus();
  }

 private:
  static absl::Status WrongSize(std::size_t bytes, std::size_t count) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes, " bytes do not stand for ", count, " numbers of ",
                     std::string(buffer::NameOf(buffer::kTypeOf<Number>)),
                     "; sender and receiver must be of one version"));
  }
};

}  // namespace

std::unique_ptr<Codec> NewBFloat16Codec(const v1alpha1::Codec&) {
  return std::make_unique<
      SixteenBitCodec<buffer::BFloat16, buffer::EncodeBFloat16, buffer::DecodeBFloat16>>();
}

std::unique_ptr<Codec> NewFloat16Codec(const v1alpha1::Codec&) {
  return std::make_unique<
      SixteenBitCodec<buffer::Float16, buffer::EncodeFloat16, buffer::DecodeFloat16>>();
}

}  // namespace starling::compression
