// SPDX-License-Identifier: Apache-2.0
// Of the numbers of a tensor the largest, with their places: a word each for the places, ascending,
// then the numbers, 8 bytes for each that is sent. Three codecs send so:
//
//   topK                     Gradient dropping (Aji and Heafield 2017)
//   deepGradientCompression  (Lin et al. 2018): with momentum correction, see compressor.h
//   entropyTopK              the tensors of one message share what may be sent in proportion to the
//                            entropy of their numbers' magnitudes. After entropy-based gradient
//                            compression (Kuang et al. 2019), whose own rule is not public: this
//                            one is ours
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/compression/selection.h"
#include "trainer/compression/tensor_codec.h"

namespace starling::compression {
namespace {

constexpr std::size_t kEntryBytes = sizeof(std::uint32_t) + sizeof(float);

// Of how the magnitudes spread over the binades: 0 where all are in one, 1 where each has as many.
// Numbers that are 0 tell nothing.
double EntropyOf(std::span<const float> values) {
  constexpr int kMantissaBits = 23, kBinades = 256;
  // Neighbours are often of one binade, and each count would wait for the one before.
  constexpr std::size_t kTables = 4;
  std::array<std::array<std::uint32_t, kTables>, kBinades> tables{};
  std::size_t zeros = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ++tables[std::bit_cast<std::uint32_t>(values[i]) << 1 >> (kMantissaBits + 1)][i % kTables];
    zeros += values[i] == 0 ? 1 : 0;
  }
  const auto total = static_cast<double>(values.size() - zeros);
  std::array<double, kBinades> counts{};
  for (int binade = 0; binade < kBinades; ++binade) {
    for (const std::uint32_t count : tables[binade]) counts[binade] += count;
  }
  counts[0] -= static_cast<double>(zeros);
  double entropy = 0;
  for (const double count : counts) {
    if (count > 0) entropy -= count / total * std::log2(count / total);
  }
  return entropy / std::log2(kBinades);
}

class TopKCodec : public TensorCodec {
 public:
  TopKCodec(double density, double sample_ratio) : density_(density), sample_ratio_(sample_ratio) {}

  bool chooses() const override { return true; }
  std::vector<double> Densities(std::span<const Piece> pieces, std::span<const float> /*values*/,
                                double least) const override {
    return std::vector<double>(pieces.size(), std::max(density_, least));
  }
  std::size_t MaxBytes(const Piece& piece, const PieceManner& manner) const override {
    return kEntryBytes * MostSelected(piece.count, manner.density);
  }

  std::size_t Encode(std::span<const float> values, const Piece& /*piece*/,
                     const PieceManner& manner, std::span<std::byte> bytes) const override {
    const std::vector<std::uint32_t> places = Largest(values, manner.density, sample_ratio_);
    std::size_t at = 0;
    for (const std::uint32_t place : places) {
      Store(place, bytes, at);
      at += sizeof place;
    }
    for (const std::uint32_t place : places) {
      Store(values[place], bytes, at);
      at += sizeof(float);
    }
    return at;
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Piece& /*piece*/,
                      std::span<float> values) const override {
    const std::size_t count = bytes.size() / kEntryBytes;
    if (bytes.size() % kEntryBytes != 0) return absl::OutOfRangeError("it ends within an entry");
    std::ranges::fill(values, 0.0F);
    std::size_t next = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto place = Load<std::uint32_t>(bytes, i * sizeof(std::uint32_t));
      const auto value = Load<float>(bytes, count * sizeof place + i * sizeof(float));
      if (place < next || place >= values.size()) {
        return absl::OutOfRangeError("places do not ascend, or are none of the tensor's");
      }
      if (!std::isfinite(value)) return absl::OutOfRangeError("a number is not finite");
      values[place] = value;
      next = std::size_t{place} + 1;
    }
    return absl::OkStatus();
  }

 protected:
  const double density_;

 private:
  const double sample_ratio_;
};

class EntropyTopKCodec final : public TopKCodec {
 public:
  using TopKCodec::TopKCodec;

  std::vector<double> Densities(std::span<const Piece> pieces, std::span<const float> values,
                                double least) const override {
    std::vector<double> densities;
    double numbers = 0, weights = 0;
    for (const Piece& piece : pieces) {
      const bool encoded = piece.width > 0;
      densities.push_back(encoded ? EntropyOf(values.first(piece.count)) : 0);
      values = values.subspan(piece.count);
      numbers += encoded ? static_cast<double>(piece.count) : 0;
      weights += densities.back() * static_cast<double>(piece.count);
    }
    for (double& density : densities) {
      const double share = weights > 0 ? density * numbers / weights : 1;
      density = std::min(kMostDensity, std::max(density_, least) * share);
    }
    return densities;
  }
};

// What the job says, or the field's default.
template <typename Message>
double DensityOf(const Message& spec, double otherwise) {
  return spec.has_density() ? spec.density() : otherwise;
}

constexpr double kDropped = 0.01, kDeep = 0.001;  // densities
constexpr double kDeepSampleRatio = 0.01;

}  // namespace

std::unique_ptr<Codec> NewTopKCodec(const v1alpha1::Codec& spec) {
  const v1alpha1::TopKCodec& given = spec.top_k();
  return NewPiecewiseCodec(
      "topK",
      std::make_unique<TopKCodec>(DensityOf(given, kDropped),
                                  given.has_sample_ratio() ? given.sample_ratio() : kSampleRatio));
}

std::unique_ptr<Codec> NewDeepGradientCompressionCodec(const v1alpha1::Codec& spec) {
  const v1alpha1::DeepGradientCompressionCodec& given = spec.deep_gradient_compression();
  return NewPiecewiseCodec("deepGradientCompression",
                           std::make_unique<TopKCodec>(DensityOf(given, kDeep), kDeepSampleRatio));
}

std::unique_ptr<Codec> NewEntropyTopKCodec(const v1alpha1::Codec& spec) {
  return NewPiecewiseCodec(
      "entropyTopK",
      std::make_unique<EntropyTopKCodec>(DensityOf(spec.entropy_top_k(), kDeep), kDeepSampleRatio));
}

}  // namespace starling::compression
