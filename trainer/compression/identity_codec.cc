// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/compression/codec.h"

namespace starling::compression {
namespace {

absl::Status Copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.size() != to.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(from.size(), " bytes do not stand for values of ", to.size(),
                     " bytes; sender and receiver must be of one version"));
  }
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  return absl::OkStatus();
}

class IdentityCodec final : public Codec {
 public:
  std::size_t MaxBytes(std::size_t count) const override { return count * sizeof(float); }
  bool lossless() const override { return true; }

  absl::StatusOr<std::size_t> Encode(buffer::ConstView values,
                                     std::span<std::byte> bytes) const override {
    ASSIGN_OR_RETURN(const std::span<const float> floats, values.As<float>());
    const auto from = std::as_bytes(floats);
    RETURN_IF_ERROR(Copy(from, bytes.first(std::min(bytes.size(), from.size()))));
    return from.size();
  }
  absl::Status Decode(std::span<const std::byte> bytes, buffer::View values) const override {
    ASSIGN_OR_RETURN(const std::span<float> floats, values.As<float>());
    return Copy(bytes, std::as_writable_bytes(floats));
  }
};

}  // namespace

std::unique_ptr<Codec> NewIdentityCodec(const v1alpha1::Codec&) {
  return std::make_unique<IdentityCodec>();
}

}  // namespace starling::compression
