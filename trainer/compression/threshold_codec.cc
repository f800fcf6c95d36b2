// SPDX-License-Identifier: Apache-2.0
// Of the numbers of a tensor those whose magnitude is at least tau, each as tau with its sign
// (Strom 2015): tau, then a word for each, its place times two, plus 1 for below 0. What a number
// has beyond tau stays in the residual. Without a tau of the job's each encoding takes the one that
// its share of the numbers reaches.
#include <algorithm>
#include <cmath>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/compression/selection.h"
#include "trainer/compression/tensor_codec.h"
#include "trainer/kernels/magnitudes.h"

namespace starling::compression {
namespace {

constexpr double kDensity = 0.01;

class ThresholdCodec final : public TensorCodec {
 public:
  // Without `tau`, 0, by `density`.
  ThresholdCodec(float tau, double density) : tau_(tau), density_(density) {}

  bool chooses() const override { return tau_ == 0; }
  std::vector<double> Densities(std::span<const Piece> pieces, std::span<const float> /*values*/,
                                double least) const override {
    return std::vector<double>(pieces.size(), tau_ > 0 ? kMostDensity : std::max(density_, least));
  }
  std::size_t MaxBytes(const Piece& piece, const PieceManner& manner) const override {
    return sizeof(float) + sizeof(std::uint32_t) * MostSelected(piece.count, manner.density);
  }

  std::size_t Encode(std::span<const float> values, const Piece& piece, const PieceManner& manner,
                     std::span<std::byte> bytes) const override {
    std::vector<std::uint32_t> places;
    if (tau_ > 0) places = kernels::AtLeast(values, tau_);
    // Where more than the most reach tau, the largest are sent.
    const bool by_share = tau_ == 0 || places.size() > MostSelected(piece.count, kMostDensity);
    if (by_share) places = Largest(values, manner.density, kSampleRatio);
    float tau = tau_;
    if (tau_ == 0) {
      for (const std::uint32_t place : places) {
        tau = tau == 0 ? std::abs(values[place]) : std::min(tau, std::abs(values[place]));
      }
    }
    Store(tau, bytes, 0);
    std::size_t at = sizeof tau;
    for (const std::uint32_t place : places) {
      Store(place << 1 | (values[place] < 0 ? 1U : 0U), bytes, at);
      at += sizeof place;
    }
    return at;
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Piece& /*piece*/,
                      std::span<float> values) const override {
    if (bytes.size() < sizeof(float) || bytes.size() % sizeof(std::uint32_t) != 0) {
      return absl::OutOfRangeError("it ends within a word");
    }
    const auto tau = Load<float>(bytes, 0);
    if (!std::isfinite(tau) || tau < 0) return absl::OutOfRangeError("its tau is no magnitude");
    std::ranges::fill(values, 0.0F);
    std::size_t next = 0;
    for (std::size_t at = sizeof tau; at < bytes.size(); at += sizeof(std::uint32_t)) {
      const auto word = Load<std::uint32_t>(bytes, at);
      const std::size_t place = word >> 1;
      if (place < next || place >= values.size()) {
        return absl::OutOfRangeError("places do not ascend, or are none of the tensor's");
      }
      values[place] = (word & 1U) != 0 ? -tau : tau;
      next = place + 1;
    }
    return absl::OkStatus();
  }

 private:
  const float tau_;
  const double density_;
};

}  // namespace

std::unique_ptr<Codec> NewThresholdCodec(const v1alpha1::Codec& spec) {
  const v1alpha1::ThresholdCodec& given = spec.threshold();
  return NewPiecewiseCodec("threshold", std::make_unique<ThresholdCodec>(
                                            static_cast<float>(given.tau()),
                                            given.has_density() ? given.density() : kDensity));
}

}  // namespace starling::compression
