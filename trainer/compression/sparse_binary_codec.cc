// SPDX-License-Identifier: Apache-2.0
// Sparse binary compression (Sattler et al. 2019): of a tensor either its most positive or its most
// negative numbers, whichever are larger on average, all as that average. Their places travel as
// the gaps between them in a Golomb-Rice code, about 8.1 bits each for one in a hundred.
//
// A float, the average with its sign; how many, a word; the bits b that each gap has as they are, a
// byte; then of each gap its quotient by 2^b, as so many ones and a zero, and its b low bits,
// lowest first. The first bit is the lowest of the first byte; what is spare is 0.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/compression/selection.h"
#include "trainer/compression/tensor_codec.h"
#include "trainer/kernels/magnitudes.h"

namespace starling::compression {
namespace {

constexpr std::size_t kCountAt = sizeof(float), kBitsAt = kCountAt + sizeof(std::uint32_t);
constexpr std::size_t kHeadBytes = kBitsAt + 1;
constexpr unsigned kMostBits = 30;

class BitWriter {
 public:
  explicit BitWriter(std::span<std::byte> bytes) : bytes_(bytes) {}
  void Put(bool bit) {
    if (at_ % 8 == 0) bytes_[at_ / 8] = std::byte{0};
    if (bit) bytes_[at_ / 8] |= static_cast<std::byte>(1U << at_ % 8);
    ++at_;
  }
  std::size_t bytes() const { return (at_ + 7) / 8; }

 private:
  const std::span<std::byte> bytes_;
  std::size_t at_ = 0;
};

// Zeros behind the end.
class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool Get() {
    const std::size_t byte = at_ / 8, bit = at_ % 8;
    ++at_;
    return byte < bytes_.size() && (std::to_integer<unsigned>(bytes_[byte]) >> bit & 1U) != 0;
  }
  // All bytes were read, no more, and the bits that are left are 0.
  bool AtEnd() {
    if ((at_ + 7) / 8 != bytes_.size()) return false;
    while (at_ % 8 != 0) {
      if (Get()) return false;
    }
    return true;
  }

 private:
  const std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

// The bits that make gaps of geometric lengths shortest, at `density` of the numbers.
unsigned GapBits(double density) {
  constexpr double kGolden = 1.6180339887498949;
  if (density >= 0.38) return 0;
  const double ratio = std::log(kGolden - 1) / std::log1p(-density);
  return std::min(kMostBits, static_cast<unsigned>(1 + std::floor(std::log2(ratio))));
}

// The average of the `wanted` largest of `values` times a sign that are above 0, and their places.
struct Side {
  double mean = 0;
  std::vector<std::uint32_t> places;
};
// `places`, ascending, are those of all that are above 0, or of as many of the largest as are
// wanted at least. Of equal ones the first are taken.
Side SideOf(std::span<const float> values, float sign, std::size_t wanted,
            std::vector<std::uint32_t> places) {
  if (places.empty()) return {};
  if (places.size() > wanted) {
    std::vector<float> sizes;
    sizes.reserve(places.size());
    for (const std::uint32_t place : places) sizes.push_back(sign * values[place]);
    const auto least = sizes.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
    std::nth_element(sizes.begin(), least, sizes.end(), std::greater<>());
    auto equals = std::count(sizes.begin(), least + 1, *least);
    std::erase_if(places, [&](std::uint32_t place) {
      const float size = sign * values[place];
      return size < *least || (size == *least && equals-- <= 0);
    });
  }
  Side side{0, std::move(places)};
  for (const std::uint32_t place : side.places) side.mean += double{sign * values[place]};
  side.mean /= static_cast<double>(side.places.size());
  return side;
}

struct Sides {
  Side above, below;
};
// Numbers below a threshold need not be looked at where enough of either side are beyond it; a
// sample says where that may be, and where it is wrong all are.
Sides SidesOf(std::span<const float> values, std::size_t wanted, double density) {
  constexpr double kEnough = 4;  // twice as many as both sides want
  float threshold = SampledThreshold(values, std::min(1.0, kEnough * density), kSampleRatio);
  while (true) {
    std::vector<std::uint32_t> above, below;
    for (const std::uint32_t place : kernels::AtLeast(values, threshold)) {
      (values[place] > 0 ? above : below).push_back(place);
    }
    if (threshold == 0 || std::min(above.size(), below.size()) >= wanted) {
      return {SideOf(values, 1, wanted, std::move(above)),
              SideOf(values, -1, wanted, std::move(below))};
    }
    threshold = 0;
  }
}

class SparseBinaryCodec final : public TensorCodec {
 public:
  explicit SparseBinaryCodec(double density) : density_(density) {}

  bool chooses() const override { return true; }
  std::vector<double> Densities(std::span<const Piece> pieces, std::span<const float> /*values*/,
                                double least) const override {
    return std::vector<double>(pieces.size(), std::max(density_, least));
  }
  // Quotients add up to at most the numbers by 2^b.
  std::size_t MaxBytes(const Piece& piece, const PieceManner& manner) const override {
    const unsigned bits = GapBits(manner.density);
    const std::size_t most =
        Wanted(piece.count, manner.density) * (bits + 1) + (piece.count >> bits) + 1;
    return kHeadBytes + (most + 7) / 8;
  }

  std::size_t Encode(std::span<const float> values, const Piece& piece, const PieceManner& manner,
                     std::span<std::byte> bytes) const override {
    const std::size_t wanted = Wanted(piece.count, manner.density);
    const auto [above, below] = SidesOf(values, wanted, manner.density);
    const bool is_above = above.mean >= below.mean;
    const Side& side = is_above ? above : below;
    const unsigned bits = GapBits(manner.density);
    Store(static_cast<float>(is_above ? side.mean : -side.mean), bytes, 0);
    Store(static_cast<std::uint32_t>(side.places.size()), bytes, kCountAt);
    Store(static_cast<std::uint8_t>(bits), bytes, kBitsAt);
    BitWriter out(bytes.subspan(kHeadBytes));
    std::uint32_t next = 0;
    for (const std::uint32_t place : side.places) {
      const std::uint32_t gap = place - next;
      for (std::uint32_t i = gap >> bits; i > 0; --i) out.Put(true);
      out.Put(false);
      for (unsigned bit = 0; bit < bits; ++bit) out.Put((gap >> bit & 1U) != 0);
      next = place + 1;
    }
    return kHeadBytes + out.bytes();
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Piece& /*piece*/,
                      std::span<float> values) const override {
    if (bytes.size() < kHeadBytes) return absl::OutOfRangeError("it ends within its head");
    const auto mean = Load<float>(bytes, 0);
    const auto count = Load<std::uint32_t>(bytes, kCountAt);
    const unsigned bits = Load<std::uint8_t>(bytes, kBitsAt);
    if (!std::isfinite(mean)) return absl::OutOfRangeError("its average is not finite");
    if (bits > kMostBits || count > values.size())
      return absl::OutOfRangeError("a count is absurd");
    std::ranges::fill(values, 0.0F);
    BitReader in(bytes.subspan(kHeadBytes));
    std::size_t next = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::size_t gap = 0;
      while (in.Get()) gap += std::size_t{1} << bits;
      for (unsigned bit = 0; bit < bits; ++bit) gap |= std::size_t{in.Get()} << bit;
      if (gap >= values.size() - next)
        return absl::OutOfRangeError("a place is none of the tensor's");
      values[next + gap] = mean;
      next += gap + 1;
    }
    return in.AtEnd() ? absl::OkStatus() : absl::OutOfRangeError("it has another size");
  }

 private:
  const double density_;
};

}  // namespace

std::unique_ptr<Codec> NewSparseBinaryCodec(const v1alpha1::Codec& spec) {
  constexpr double kDensity = 0.01;
  const v1alpha1::SparseBinaryCodec& given = spec.sparse_binary();
  return NewPiecewiseCodec("sparseBinary", std::make_unique<SparseBinaryCodec>(
                                               given.has_density() ? given.density() : kDensity));
}

}  // namespace starling::compression
