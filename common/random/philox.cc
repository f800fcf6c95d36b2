// SPDX-License-Identifier: Apache-2.0
// Draws are made kLanes at a time, by loops that the compiler vectorises: one draw or many, on any
// processor, the bits are the same. So nothing here calls the C library's logarithm or cosine,
// which choose among versions of different last bits.
#include "common/random/philox.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "common/vectorised/vectorised.h"

namespace starling::random {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;  // square root of 3, less 1
constexpr int kRounds = 10;
constexpr int kStreamShift = 56;  // leaves 2^56 substreams to each stream
constexpr std::size_t kLanes = 64;

using Key = std::array<std::uint32_t, 2>;

constexpr std::uint32_t Low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
constexpr std::uint32_t High(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
constexpr std::uint64_t Join(std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}

STARLING_PART_OF_VECTORISED Block Round(const Block& block, std::uint32_t key0,
                                        std::uint32_t key1) {
  const std::uint64_t product0 = std::uint64_t{kMultiplier0} * block[0];
  const std::uint64_t product1 = std::uint64_t{kMultiplier1} * block[2];
  return {High(product1) ^ block[1] ^ key0, Low(product1), High(product0) ^ block[3] ^ key1,
          Low(product0)};
}

// As many draws as there are lanes, word by word.
struct Lanes {
  std::uint32_t words[4][kLanes];
};

STARLING_PART_OF_VECTORISED void Draw(const Key& key, std::uint64_t high, std::uint64_t first,
                                      Lanes& lanes) {
  auto& [word0, word1, word2, word3] = lanes.words;
  for (std::size_t i = 0; i < kLanes; ++i) {
    word0[i] = Low(first + i);
    word1[i] = High(first + i);
    word2[i] = Low(high);
    word3[i] = High(high);
  }
  std::uint32_t key0 = key[0];
  std::uint32_t key1 = key[1];
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const Block block = Round({word0[i], word1[i], word2[i], word3[i]}, key0, key1);
      word0[i] = block[0];
      word1[i] = block[1];
      word2[i] = block[2];
      word3[i] = block[3];
    }
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

// Exact. Only AVX-512 converts unsigned numbers, all others signed ones.
STARLING_PART_OF_VECTORISED double ToDouble(std::uint32_t word) {
  return static_cast<double>(static_cast<std::int32_t>(word ^ 0x80000000U)) + 0x1p31;
}

// The upper 53 bits of both, as a fraction in [0, 1): exact.
STARLING_PART_OF_VECTORISED double ToUnit(std::uint32_t low, std::uint32_t high) {
  return (ToDouble(high) * 0x1p21 + ToDouble(low >> 11)) * 0x1p-53;
}

// The natural logarithm of `x` in [2^-53, 1], with an error of a few units in the last place: x is
// 2^e * m with m between the root of a half and that of two, and log(m) = 2 artanh((m - 1) / (m +
// 1)).
STARLING_PART_OF_VECTORISED double Log(double x) {
  constexpr std::uint64_t kOne = std::bit_cast<std::uint64_t>(1.0);
  constexpr std::uint64_t kRootHalf = std::bit_cast<std::uint64_t>(std::numbers::sqrt2 / 2);
  constexpr int kMantissa = 52;  // bits
  constexpr int kBias = 1023;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x) + (kOne - kRootHalf);
  const auto e = static_cast<double>(static_cast<std::int32_t>(Low(bits >> kMantissa)) - kBias);
  const auto m = std::bit_cast<double>((bits & ((std::uint64_t{1} << kMantissa) - 1)) + kRootHalf);
  const double f = m - 1;
  const double s = f / (2 + f);
  // artanh(s) = s (1 + series), where |s| < 0.172: what is left out is below 2^-59.
  double series = 0;
  for (int k = 10; k >= 1; --k) series = (series + 1.0 / (2 * k + 1)) * (s * s);
  return e * std::numbers::ln2 + (f - s * (f - 2 * series));
}

// cos(2 pi x) for x in [0, 1). The nearest quarter of a turn says whether it is a sine or a cosine
// of what is left of x, which is at most an eighth of a turn.
STARLING_PART_OF_VECTORISED double CosOfTurns(double x) {
  const auto quarter = static_cast<std::int32_t>(4 * x + 0.5);
  const double angle = 2 * std::numbers::pi * (x - 0.25 * quarter);
  const double square = angle * angle;
  // Both Taylor series, from their last terms on: what is left out is below 2^-58.
  double cosine = 0;
  double sine = 0;
  for (int k = 9; k >= 1; --k) {
    cosine = (1 - cosine) * (square * (1.0 / ((2 * k - 1) * (2 * k))));
    sine = (1 - sine) * (square * (1.0 / ((2 * k) * (2 * k + 1))));
  }
  const double size = (quarter & 1) != 0 ? angle - angle * sine : 1 - cosine;
  return ((quarter + 1) & 2) != 0 ? -size : size;
}

STARLING_PART_OF_VECTORISED double ToNormal(std::uint32_t word0, std::uint32_t word1,
                                            std::uint32_t word2, std::uint32_t word3) {
  return std::sqrt(-2 * Log(1 - ToUnit(word0, word1))) * CosOfTurns(ToUnit(word2, word3));
}

STARLING_VECTORISED void DrawUniforms(const Key& key, std::uint64_t high, std::uint64_t first,
                                      double* out) {
  Lanes lanes;
  Draw(key, high, first, lanes);
  const auto& [word0, word1, word2, word3] = lanes.words;
  for (std::size_t i = 0; i < kLanes; ++i) out[i] = ToUnit(word0[i], word1[i]);
}

STARLING_VECTORISED void DrawNormals(const Key& key, std::uint64_t high, std::uint64_t first,
                                     double* out) {
  Lanes lanes;
  Draw(key, high, first, lanes);
  const auto& [word0, word1, word2, word3] = lanes.words;
  for (std::size_t i = 0; i < kLanes; ++i) {
    out[i] = ToNormal(word0[i], word1[i], word2[i], word3[i]);
  }
}

// `draw` fills as many as there are lanes, `draw_one` gives one of those. What is left is drawn one
// by one where that is quicker than whole lanes.
template <typename DrawLanes, typename DrawOne>
void Fill(std::uint64_t first, std::span<double> out, DrawLanes draw, DrawOne draw_one) {
  constexpr std::size_t kWorthLanes = kLanes / 4;
  while (out.size() >= kLanes) {
    draw(first, out.data());
    first += kLanes;
    out = out.subspan(kLanes);
  }
  if (out.size() < kWorthLanes) {
    for (double& value : out) value = draw_one(first++);
    return;
  }
  std::array<double, kLanes> last;
  draw(first, last.data());
  std::copy_n(last.begin(), out.size(), out.begin());
}

}  // namespace

Block Philox4x32(const Block& counter, const std::array<std::uint32_t, 2>& key) {
  Block block = counter;
  std::uint32_t key0 = key[0];
  std::uint32_t key1 = key[1];
  for (int round = 0; round < kRounds; ++round) {
    block = Round(block, key0, key1);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return block;
}

Philox::Philox(std::uint64_t seed, Stream stream, std::uint64_t substream)
    : key_{Low(seed), High(seed)},
      high_(static_cast<std::uint64_t>(stream) << kStreamShift ^ substream) {}

Block Philox::At(std::uint64_t counter) const {
  return Philox4x32({Low(counter), High(counter), Low(high_), High(high_)}, key_);
}

std::uint64_t Philox::Bits64(std::uint64_t counter) const {
  const Block block = At(counter);
  return Join(block[0], block[1]);
}

double Philox::Uniform(std::uint64_t counter) const {
  const Block block = At(counter);
  return ToUnit(block[0], block[1]);
}

std::uint64_t Philox::Below(std::uint64_t counter, std::uint64_t bound) const {
  using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{Bits64(counter)} * bound >> 64);
}

double Philox::Normal(std::uint64_t counter) const {
  const Block block = At(counter);
  return ToNormal(block[0], block[1], block[2], block[3]);
}

void Philox::Uniforms(std::uint64_t first, std::span<double> out) const {
  Fill(
      first, out, [this](std::uint64_t at, double* to) { DrawUniforms(key_, high_, at, to); },
      [this](std::uint64_t at) { return Uniform(at); });
}

void Philox::Normals(std::uint64_t first, std::span<double> out) const {
  Fill(
      first, out, [this](std::uint64_t at, double* to) { DrawNormals(key_, high_, at, to); },
      [this](std::uint64_t at) { return Normal(at); });
}

}  // namespace starling::random
