// SPDX-License-Identifier: Apache-2.0
// A code is a level plus `most`. Codes of a block lie in lanes of 8 bits, or of 16 where they need
// more; neighbours are put side by side until what is left is words. These steps are the same for
// each word, so that compilers make vectors of them. Codes of more than 16 bits, and those behind
// the last block, go one by one.
#include "trainer/kernels/levels.h"

#include <bit>
#include <cstring>

#include "common/status/check.h"
#include "common/vectorised/vectorised.h"

namespace starling::kernels {
namespace {

static_assert(std::endian::native == std::endian::little);

using Word = std::uint64_t;
constexpr unsigned kBitsOfByte = 8, kBitsOfWord = 64;
constexpr std::size_t kBlock = 64;                // levels
constexpr std::size_t kGroup = 8;                 // levels: a whole number of bytes at any width
constexpr std::size_t kReach = 2 * sizeof(Word);  // of what is loaded or stored for a group
constexpr unsigned kWidest = 16;                  // bits of a code that is in a block

// The lower half of each lane of `bits`.
constexpr Word LowHalves(unsigned bits) {
  Word mask = 0;
  for (unsigned at = 0; at < kBitsOfWord; at += bits) mask |= ((Word{1} << bits / 2) - 1) << at;
  return mask;
}

// In each lane of kLane bits there are two numbers of `bits`, one in each half: puts the second
// beside the first, and back.
template <unsigned kLane>
STARLING_PART_OF_VECTORISED Word Joined(Word word, unsigned bits) {
  constexpr Word kLow = LowHalves(kLane);
  return (word & kLow) | (word >> kLane / 2 & kLow) << bits;
}
template <unsigned kLane>
STARLING_PART_OF_VECTORISED Word Parted(Word word, unsigned bits) {
  constexpr Word kLow = LowHalves(kLane);
  const Word first = kLow & ~(kLow << bits);
  return (word & first) | (word >> bits & first) << kLane / 2;
}

// All lanes of a word.
STARLING_PART_OF_VECTORISED Word JoinedAll(Word word, unsigned width, std::uint8_t) {
  return Joined<64>(Joined<32>(Joined<16>(word, width), 2 * width), 4 * width);
}
STARLING_PART_OF_VECTORISED Word JoinedAll(Word word, unsigned width, std::uint16_t) {
  return Joined<64>(Joined<32>(word, width), 2 * width);
}
STARLING_PART_OF_VECTORISED Word PartedAll(Word word, unsigned width, std::uint8_t) {
  return Parted<16>(Parted<32>(Parted<64>(word, 4 * width), 2 * width), width);
}
STARLING_PART_OF_VECTORISED Word PartedAll(Word word, unsigned width, std::uint16_t) {
  return Parted<32>(Parted<64>(word, 2 * width), width);
}

// A group's codes, joined, as its `width` bytes; kReach bytes are touched. Codes in lanes of 16
// bits are two words, of 4 * width bits each.
STARLING_PART_OF_VECTORISED void Store(const Word* words, unsigned width, std::byte* bytes,
                                       std::uint16_t) {
  const unsigned bits = 4 * width;
  const Word joined[] = {words[0] | (bits < kBitsOfWord ? words[1] << bits : 0),
                         words[1] >> (kBitsOfWord - bits)};
  std::memcpy(bytes, joined, sizeof joined);
}
STARLING_PART_OF_VECTORISED void Store(const Word* words, unsigned /*width*/, std::byte* bytes,
                                       std::uint8_t) {
  std::memcpy(bytes, words, sizeof *words);
}
STARLING_PART_OF_VECTORISED void Load(const std::byte* bytes, unsigned width, Word* words,
                                      std::uint16_t) {
  const unsigned bits = 4 * width;
  Word joined[2];
  std::memcpy(joined, bytes, sizeof joined);
  const Word mask = ~Word{0} >> (kBitsOfWord - bits);
  words[0] = joined[0] & mask;
  words[1] =
      ((bits < kBitsOfWord ? joined[0] >> bits : 0) | joined[1] << (kBitsOfWord - bits)) & mask;
}
STARLING_PART_OF_VECTORISED void Load(const std::byte* bytes, unsigned width, Word* words,
                                      std::uint8_t) {
  std::memcpy(words, bytes, sizeof *words);
  *words &= ~Word{0} >> (kBitsOfWord - kGroup * width);
}

template <typename Code>
STARLING_PART_OF_VECTORISED void PackBlocks(const std::int32_t* levels, std::int32_t most,
                                            unsigned width, std::byte* bytes, std::size_t blocks) {
  constexpr std::size_t kWords = kBlock * sizeof(Code) / sizeof(Word);
  for (; blocks > 0; --blocks, levels += kBlock) {
    Code codes[kBlock];
    for (std::size_t i = 0; i < kBlock; ++i) codes[i] = static_cast<Code>(levels[i] + most);
    Word words[kWords];
    std::memcpy(words, codes, sizeof words);
    for (Word& word : words) word = JoinedAll(word, width, Code{});
    for (std::size_t i = 0; i < kWords; i += kWords * kGroup / kBlock, bytes += width) {
      Store(words + i, width, bytes, Code{});
    }
  }
}
// Returns the largest code.
template <typename Code>
STARLING_PART_OF_VECTORISED std::uint32_t UnpackBlocks(const std::byte* bytes, std::int32_t most,
                                                       unsigned width, std::int32_t* levels,
                                                       std::size_t blocks) {
  constexpr std::size_t kWords = kBlock * sizeof(Code) / sizeof(Word);
  std::uint32_t largest = 0;
  for (; blocks > 0; --blocks, levels += kBlock) {
    Word words[kWords];
    for (std::size_t i = 0; i < kWords; i += kWords * kGroup / kBlock, bytes += width) {
      Load(bytes, width, words + i, Code{});
    }
    for (Word& word : words) word = PartedAll(word, width, Code{});
    Code codes[kBlock];
    std::memcpy(codes, words, sizeof codes);
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::uint32_t code = codes[i];
      largest = code > largest ? code : largest;
      levels[i] = static_cast<std::int32_t>(code) - most;
    }
  }
  return largest;
}

STARLING_VECTORISED void PackLoop(const std::int32_t* levels, std::int32_t most, unsigned width,
                                  std::byte* bytes, std::size_t blocks) {
  if (width <= kBitsOfByte) {
    PackBlocks<std::uint8_t>(levels, most, width, bytes, blocks);
  } else {
    PackBlocks<std::uint16_t>(levels, most, width, bytes, blocks);
  }
}
STARLING_VECTORISED std::uint32_t UnpackLoop(const std::byte* bytes, std::int32_t most,
                                             unsigned width, std::int32_t* levels,
                                             std::size_t blocks) {
  return width <= kBitsOfByte ? UnpackBlocks<std::uint8_t>(bytes, most, width, levels, blocks)
                              : UnpackBlocks<std::uint16_t>(bytes, most, width, levels, blocks);
}

STARLING_VECTORISED void ScaleLoop(const std::int32_t* levels, float scale, float* values,
                                   std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(levels[i]) * scale;
}

// Of `count` levels in `size` bytes: those whose last group has kReach bytes of its own.
std::size_t WholeBlocks(std::size_t count, unsigned width, std::size_t size) {
  if (width > kWidest || count < kBlock) return 0;
  const std::size_t blocks = count / kBlock;
  const std::size_t last_group = (blocks * kBlock / kGroup - 1) * width;
  return last_group + kReach <= size ? blocks : blocks - 1;
}

}  // namespace

int LevelBits(std::int64_t most) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(2 * most)));
}

std::size_t PackedBytes(std::size_t count, std::int64_t most) {
  return (count * static_cast<std::size_t>(LevelBits(most)) + kBitsOfByte - 1) / kBitsOfByte;
}

void PackLevels(std::span<const std::int32_t> levels, std::int64_t most,
                std::span<std::byte> bytes) {
  STARLING_CHECK(bytes.size() == PackedBytes(levels.size(), most), "each level has its bits");
  const auto width = static_cast<unsigned>(LevelBits(most));
  const std::size_t blocks = WholeBlocks(levels.size(), width, bytes.size());
  if (blocks > 0) {
    PackLoop(levels.data(), static_cast<std::int32_t>(most), width, bytes.data(), blocks);
  }
  std::size_t at = blocks * kBlock * width / kBitsOfByte;
  Word waiting = 0;  // bits that are no byte yet, the first the lowest
  unsigned bits = 0;
  for (const std::int32_t level : levels.subspan(blocks * kBlock)) {
    waiting |= static_cast<Word>(level + most) << bits;
    for (bits += width; bits >= kBitsOfByte; bits -= kBitsOfByte, waiting >>= kBitsOfByte) {
      bytes[at++] = static_cast<std::byte>(waiting);
    }
  }
  if (bits > 0) bytes[at] = static_cast<std::byte>(waiting);
}

bool UnpackLevels(std::span<const std::byte> bytes, std::int64_t most,
                  std::span<std::int32_t> levels) {
  if (bytes.size() != PackedBytes(levels.size(), most)) return false;
  const auto width = static_cast<unsigned>(LevelBits(most));
  const std::size_t blocks = WholeBlocks(levels.size(), width, bytes.size());
  Word largest = 0;
  if (blocks > 0) {
    largest =
        UnpackLoop(bytes.data(), static_cast<std::int32_t>(most), width, levels.data(), blocks);
  }
  std::size_t at = blocks * kBlock * width / kBitsOfByte;
  const Word mask = (Word{1} << width) - 1;
  Word waiting = 0;
  unsigned bits = 0;
  for (std::int32_t& level : levels.subspan(blocks * kBlock)) {
    for (; bits < width; bits += kBitsOfByte) {
      waiting |= std::to_integer<Word>(bytes[at++]) << bits;
    }
    const Word code = waiting & mask;
    largest = code > largest ? code : largest;
    level = static_cast<std::int32_t>(static_cast<std::int64_t>(code) - most);
    waiting >>= width;
    bits -= width;
  }
  return waiting == 0 && largest <= static_cast<Word>(2 * most);
}

void ScaleLevels(std::span<const std::int32_t> levels, float scale, std::span<float> values) {
  STARLING_CHECK(levels.size() == values.size(), "spans of one call have equal lengths");
  ScaleLoop(levels.data(), scale, values.data(), levels.size());
}

}  // namespace starling::kernels
