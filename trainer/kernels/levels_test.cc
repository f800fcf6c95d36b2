// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

namespace starling::kernels {
namespace {

TEST(Levels, GoThereAndBackInAsFewBitsAsTheyNeed) {
  std::mt19937 random(1);
  for (const auto& [most, bits] : std::vector<std::pair<std::int32_t, int>>{
           {1, 2}, {2, 3}, {3, 3}, {4, 4}, {7, 4}, {8, 5}, {127, 8}, {254, 9}, {1 << 30, 32}}) {
    EXPECT_EQ(LevelBits(most), bits);
    for (std::size_t count = 0; count < 40; ++count) {
      std::uniform_int_distribution<std::int32_t> level(-most, most);
      std::vector<std::int32_t> levels(count), read(count, 77);
      for (std::int32_t& one : levels) one = level(random);
      if (count > 1) levels[0] = most, levels[1] = -most;
      std::vector<std::byte> bytes(PackedBytes(count, most), std::byte{0xff});
      EXPECT_EQ(bytes.size(), (count * static_cast<std::size_t>(bits) + 7) / 8);
      PackLevels(levels, most, bytes);
      EXPECT_TRUE(UnpackLevels(bytes, most, read));
      EXPECT_EQ(read, levels);
    }
  }
}

// Bit by bit, as the header says.
std::vector<std::byte> PackedOneByOne(std::span<const std::int32_t> levels, std::int64_t most) {
  std::vector<std::byte> bytes(PackedBytes(levels.size(), most));
  std::size_t at = 0;
  for (const std::int32_t level : levels) {
    for (int bit = 0; bit < LevelBits(most); ++bit, ++at) {
      const auto code = static_cast<std::uint64_t>(level + most);
      if ((code >> bit & 1U) != 0) bytes[at / 8] |= std::byte{1} << at % 8;
    }
  }
  return bytes;
}

TEST(Levels, OfEveryWidthLieSideBySideAtEveryLength) {
  std::mt19937 random(2);
  for (int bits = 2; bits <= 20; ++bits) {
    const std::int32_t most = (1 << (bits - 1)) - 1;
    std::uniform_int_distribution<std::int32_t> level(-most, most);
    for (std::size_t count = 0; count <= 400; count += count < 140 ? 1 : 13) {
      std::vector<std::int32_t> levels(count), read(count, 77);
      for (std::int32_t& one : levels) one = level(random);
      const std::vector<std::byte> expected = PackedOneByOne(levels, most);
      // What is behind the bytes stays.
      std::vector<std::byte> room(expected.size() + 40, std::byte{0xa5});
      PackLevels(levels, most, std::span(room).first(expected.size()));
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), room.begin()))
          << bits << ' ' << count;
      ASSERT_EQ(std::count(room.begin() + static_cast<std::ptrdiff_t>(expected.size()), room.end(),
                           std::byte{0xa5}),
                40);
      ASSERT_TRUE(UnpackLevels(expected, most, read));
      ASSERT_EQ(read, levels) << bits << ' ' << count;
    }
  }
}

TEST(Levels, OneBeyondTheLargestIsSeenWhereverItIs) {
  for (const std::int64_t most : {2, 100, 254, 30000}) {  // each leaves codes that are none
    for (std::size_t place = 0; place < 200; ++place) {
      std::vector<std::int32_t> levels(200), read(200);
      levels[place] = static_cast<std::int32_t>(most) + 1;
      EXPECT_FALSE(UnpackLevels(PackedOneByOne(levels, most), most, read)) << most << ' ' << place;
    }
  }
}

TEST(Levels, RefusesWhatIsBeyondThem) {
  std::vector<std::int32_t> levels(3);
  EXPECT_FALSE(UnpackLevels(std::vector<std::byte>(2), 1, levels))
      << "three of two bits are one byte";
  EXPECT_FALSE(UnpackLevels(std::vector{std::byte{0b00'11'01'00}}, 1, levels))
      << "3 is none of three";
  EXPECT_FALSE(UnpackLevels(std::vector{std::byte{0b01'00'01'00}}, 1, levels)) << "spare bits";
  EXPECT_TRUE(UnpackLevels(std::vector{std::byte{0b00'10'01'00}}, 1, levels));
  EXPECT_EQ(levels, (std::vector<std::int32_t>{-1, 0, 1}));
}

}  // namespace
}  // namespace starling::kernels
