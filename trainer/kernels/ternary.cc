// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/ternary.h"

#include <cmath>

#include "common/status/check.h"
#include "common/vectorised/vectorised.h"

namespace starling::kernels {
namespace {

constexpr unsigned kBits = 2, kMask = 3, kZero = 1;
// Bytes whose draws are made at once: each loop over them is one that compilers vectorise.
constexpr std::size_t kBlock = 64;

// The words of kBlock bytes' draws, each word apart.
struct Words {
  std::uint32_t of[kTernaryPerByte][kBlock];
};

// Philox4x32-10 (Salmon et al. 2011) of kBlock counters from `first` on.
STARLING_PART_OF_VECTORISED Words Draw(const TernaryDraws& draws, std::uint32_t first) {
  constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10, kHigh = 32;
  std::uint32_t a[kBlock], b[kBlock], c[kBlock], d[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) {
    a[i] = first + static_cast<std::uint32_t>(i);
    b[i] = draws.counter[0];
    c[i] = draws.counter[1];
    d[i] = 0;
  }
  std::uint32_t key0 = draws.key[0], key1 = draws.key[1];
  for (int round = 0; round < kRounds; ++round, key0 += kWeyl0, key1 += kWeyl1) {
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::uint64_t product0 = std::uint64_t{kMultiplier0} * std::uint64_t{a[i]};
      const std::uint64_t product1 = std::uint64_t{kMultiplier1} * std::uint64_t{c[i]};
      a[i] = static_cast<std::uint32_t>(product1 >> kHigh) ^ b[i] ^ key0;
      b[i] = static_cast<std::uint32_t>(product1);
      c[i] = static_cast<std::uint32_t>(product0 >> kHigh) ^ d[i] ^ key1;
      d[i] = static_cast<std::uint32_t>(product0);
    }
  }
  Words words;
  for (std::size_t i = 0; i < kBlock; ++i) {
    words.of[0][i] = a[i];
    words.of[1][i] = b[i];
    words.of[2][i] = c[i];
    words.of[3][i] = d[i];
  }
  return words;
}

// A draw of 32 bits is below `inverse`, which is times 2^32, with the number's probability.
inline std::uint32_t CodeOf(float value, std::uint32_t draw, float clip, double inverse) {
  const float magnitude = value < 0 ? -value : value;
  const double share = static_cast<double>(magnitude < clip ? magnitude : clip) * inverse;
  const std::uint32_t sent = static_cast<double>(draw) < share ? 1 : 0;
  const std::uint32_t negative = value < 0 ? 1 : 0;
  return kZero + sent - 2 * (sent & negative);
}

// Whole blocks alone: `n` bytes, a multiple of kBlock. Each word is of every fourth number.
STARLING_VECTORISED void DrawLoop(const float* x, float clip, double inverse,
                                  const TernaryDraws& draws, std::uint8_t* y, std::size_t n) {
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    const Words words = Draw(draws, static_cast<std::uint32_t>(begin));
    const float* const values = x + kTernaryPerByte * begin;
    std::uint32_t bytes[kBlock] = {};
    for (unsigned j = 0; j < kTernaryPerByte; ++j) {
      float apart[kBlock];
      for (std::size_t i = 0; i < kBlock; ++i) apart[i] = values[kTernaryPerByte * i + j];
      for (std::size_t i = 0; i < kBlock; ++i) {
        bytes[i] |= CodeOf(apart[i], words.of[j][i], clip, inverse) << kBits * j;
      }
    }
    for (std::size_t i = 0; i < kBlock; ++i) y[begin + i] = static_cast<std::uint8_t>(bytes[i]);
  }
}

// Whole bytes alone. Which codes there were, as bits of a byte.
STARLING_VECTORISED std::uint32_t FromLoop(const std::uint8_t* x, float scale, float* y,
                                           std::size_t n) {
  std::uint32_t wrong = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t byte = x[i];
    wrong |= byte & byte >> 1;
    for (unsigned j = 0; j < kTernaryPerByte; ++j) {
      const auto level = static_cast<std::int32_t>(byte >> kBits * j & kMask) - std::int32_t{kZero};
      y[kTernaryPerByte * i + j] = static_cast<float>(level) * scale;
    }
  }
  return wrong;
}
STARLING_VECTORISED std::uint32_t AddLoop(const std::uint8_t* x, std::int32_t* y, std::size_t n) {
  std::uint32_t wrong = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t byte = x[i];
    wrong |= byte & byte >> 1;
    for (unsigned j = 0; j < kTernaryPerByte; ++j) {
      y[kTernaryPerByte * i + j] +=
          static_cast<std::int32_t>(byte >> kBits * j & kMask) - std::int32_t{kZero};
    }
  }
  return wrong;
}

const std::uint8_t* BytesOf(std::span<const std::byte> codes) {
  return reinterpret_cast<const std::uint8_t*>(codes.data());
}

// No code has both of its bits, and what is behind the last of `count` is 0.
bool AreKnown(std::uint32_t wrong, std::span<const std::byte> codes, std::size_t count) {
  constexpr std::uint32_t kLowBits = 0x55;
  if ((wrong & kLowBits) != 0) return false;
  const std::size_t used = count % kTernaryPerByte;
  return used == 0 || std::to_integer<unsigned>(codes.back()) >> kBits * used == 0;
}

// Calls `loop(codes, values, n)` with whole bytes, the last one's numbers in a place of their own.
template <typename Number, typename Loop>
bool ForWholeBytes(std::span<const std::byte> codes, std::span<Number> values, const Loop& loop) {
  STARLING_CHECK(codes.size() == TernaryBytes(values.size()), "each number has a code");
  const std::size_t whole = values.size() / kTernaryPerByte;
  std::uint32_t wrong = loop(BytesOf(codes), values.data(), whole);
  if (whole < codes.size()) {
    const std::span<Number> rest = values.subspan(whole * kTernaryPerByte);
    Number last[kTernaryPerByte] = {};
    for (std::size_t i = 0; i < rest.size(); ++i) last[i] = rest[i];
    wrong |= loop(BytesOf(codes) + whole, last, 1);
    for (std::size_t i = 0; i < rest.size(); ++i) rest[i] = last[i];
  }
  return AreKnown(wrong, codes, values.size());
}

}  // namespace

void DrawTernary(std::span<const float> values, float clip, double inverse,
                 const TernaryDraws& draws, std::span<std::byte> codes) {
  STARLING_CHECK(codes.size() == TernaryBytes(values.size()), "each number has a code");
  const double of_draws = inverse * 0x1p32;
  const std::size_t whole = values.size() / (kTernaryPerByte * kBlock) * kBlock;
  auto* const out = reinterpret_cast<std::uint8_t*>(codes.data());
  DrawLoop(values.data(), clip, of_draws, draws, out, whole);
  if (whole == codes.size()) return;
  const Words words = Draw(draws, static_cast<std::uint32_t>(whole));
  for (std::size_t i = whole; i < codes.size(); ++i) {
    std::uint32_t byte = 0;
    for (std::size_t j = 0; j < kTernaryPerByte && kTernaryPerByte * i + j < values.size(); ++j) {
      byte |= CodeOf(values[kTernaryPerByte * i + j], words.of[j][i - whole], clip, of_draws)
              << kBits * j;
    }
    out[i] = static_cast<std::uint8_t>(byte);
  }
}

bool FromTernary(std::span<const std::byte> codes, float scale, std::span<float> values) {
  return ForWholeBytes(codes, values, [scale](const std::uint8_t* x, float* y, std::size_t n) {
    return FromLoop(x, scale, y, n);
  });
}

bool AddTernary(std::span<const std::byte> codes, std::span<std::int32_t> sums) {
  return ForWholeBytes(codes, sums, AddLoop);
}

}  // namespace starling::kernels
