// SPDX-License-Identifier: Apache-2.0
// A byte for each number, its sign and its logarithm in steps of an eighth of a factor of two: an
// exponent for each tensor, then the codes of kernels/quantise.h. A number within 2^15 of the
// largest is right within 4.5 percent (2^(1/16) - 1), and the product of two has the sum of their
// codes as its code. Smaller ones become 0.
#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>

#include "trainer/compression/tensor_codec.h"
#include "trainer/kernels/magnitudes.h"
#include "trainer/kernels/quantise.h"

namespace starling::compression {
namespace {

using Exponent = std::int16_t;
constexpr Exponent kLeast = -126, kMost = 128;  // magnitudes are below 2^128
constexpr std::size_t kCodes = 256, kSign = 128, kZero = 127;

// What each code stands for.
std::array<float, kCodes> NumbersOf(Exponent exponent) {
  std::array<float, kCodes> numbers{};
  for (std::size_t code = 0; code < kZero; ++code) {
    const double steps = exponent * kernels::kLogSteps - static_cast<int>(code);
    const double number = std::exp2(steps / kernels::kLogSteps);
    numbers[code] = static_cast<float>(std::min(number, double{FLT_MAX}));
    numbers[code + kSign] = -numbers[code];
  }
  return numbers;
}

class LogarithmicCodec final : public TensorCodec {
 public:
  // As many bytes for any number of ranks; the sum is rounded once more.
  bool by_tiles() const override { return true; }
  Summing summing() const override { return Summing::kByOwners; }
  std::size_t MaxBytes(const Piece& piece, const PieceManner& /*manner*/) const override {
    return sizeof(Exponent) + piece.count;
  }

  std::size_t Encode(std::span<const float> values, const Piece& piece,
                     const PieceManner& /*manner*/, std::span<std::byte> bytes) const override {
    int exponent = 0;  // of the power of two above all
    (void)std::frexp(kernels::LargestMagnitude(values), &exponent);
    exponent = std::clamp<int>(exponent, kLeast, kMost);
    Store(static_cast<Exponent>(exponent), bytes, 0);
    kernels::QuantiseLog(
        values, exponent,
        {reinterpret_cast<std::uint8_t*>(bytes.data() + sizeof(Exponent)), values.size()});
    return sizeof(Exponent) + piece.count;
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Piece& piece,
                      std::span<float> values) const override {
    if (bytes.size() != MaxBytes(piece, {})) return absl::OutOfRangeError("it has another size");
    const auto exponent = Load<Exponent>(bytes, 0);
    if (exponent < kLeast || exponent > kMost) {
      return absl::OutOfRangeError("its exponent is no float's");
    }
    const std::array<float, kCodes> numbers = NumbersOf(exponent);
    const std::span<const std::byte> codes = bytes.subspan(sizeof exponent);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = numbers[std::to_integer<std::size_t>(codes[i])];
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<Codec> NewLogarithmicCodec(const v1alpha1::Codec&) {
  return NewPiecewiseCodec("logarithmic", std::make_unique<LogarithmicCodec>());
}

}  // namespace starling::compression
