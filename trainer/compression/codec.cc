// SPDX-License-Identifier: Apache-2.0
#include "trainer/compression/codec.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::compression {
namespace {

constexpr CodecKind kKinds[] = {{"identity", NewIdentityCodec},
                                {"bfloat16", NewBFloat16Codec},
                                {"float16", NewFloat16Codec},
                                {"oneBit", NewOneBitCodec},
                                {"topK", NewTopKCodec},
                                {"ternGrad", NewTernGradCodec},
                                {"int8", NewInt8Codec},
                                {"threshold", NewThresholdCodec},
                                {"deepGradientCompression", NewDeepGradientCompressionCodec},
                                {"sparseBinary", NewSparseBinaryCodec},
                                {"entropyTopK", NewEntropyTopKCodec},
                                {"logarithmic", NewLogarithmicCodec}};

// Of the codecs with momentum correction.
constexpr double kMomentum = 0.9;
template <typename Message>
double MomentumIn(const Message& spec) {
  return spec.has_momentum() ? spec.momentum() : kMomentum;
}

// Immutable, so all threads share them.
const std::vector<std::unique_ptr<Codec>>& All() {
  static const auto& codecs = *new std::vector<std::unique_ptr<Codec>>([] {
    std::vector<std::unique_ptr<Codec>> made;
    for (const CodecKind& kind : kKinds) made.push_back(kind.make({}));
    return made;
  }());
  return codecs;
}

}  // namespace

std::span<const CodecKind> CodecKinds() { return kKinds; }

absl::StatusOr<const Codec*> FindCodec(CodecNumber number) {
  if (number < All().size()) return All()[number].get();
  return absl::InvalidArgumentError(absl::StrCat("no codec has the number ", number,
                                                 ", only those below ", All().size(),
                                                 "; sender and receiver must be of one version"));
}

absl::StatusOr<CodecNumber> CodecNumberOf(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    if (kKinds[i].name == name) return static_cast<CodecNumber>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("spec.compression.codec: this build has no codec \"", std::string(name),
                   "\"; worker, servers and controller must be of one version"));
}

absl::StatusOr<CodecNumber> CodecNumberOf(const v1alpha1::Codec& codec) {
  if (codec.kind_case() == v1alpha1::Codec::KIND_NOT_SET) return kIdentity;
  return CodecNumberOf(codec.GetDescriptor()->FindFieldByNumber(codec.kind_case())->json_name());
}

absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const v1alpha1::Codec& codec) {
  ASSIGN_OR_RETURN(const CodecNumber number, CodecNumberOf(codec));
  return kKinds[number].make(codec);
}

std::optional<double> MomentumOf(const v1alpha1::Codec& codec) {
  if (codec.has_deep_gradient_compression()) return MomentumIn(codec.deep_gradient_compression());
  if (codec.has_entropy_top_k()) return MomentumIn(codec.entropy_top_k());
  return std::nullopt;
}

absl::StatusOr<CodecNumber> CodecNumberOfReads(const v1alpha1::Codec& codec) {
  ASSIGN_OR_RETURN(const CodecNumber number, CodecNumberOf(codec));
  return All()[number]->close() ? number : kIdentity;
}

absl::StatusOr<std::string> EncodeText(const Codec& codec, buffer::ConstView values) {
  std::string bytes(codec.MaxBytes(values.size()), '\0');
  ASSIGN_OR_RETURN(const std::size_t size,
                   codec.Encode(values, std::as_writable_bytes(std::span(bytes))));
  bytes.resize(size);
  return bytes;
}

}  // namespace starling::compression
