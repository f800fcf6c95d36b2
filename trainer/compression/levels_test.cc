// SPDX-License-Identifier: Apache-2.0
#include "trainer/compression/levels.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace starling::compression {
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
      EXPECT_EQ(UnpackLevels(bytes, most, read), absl::OkStatus());
      EXPECT_EQ(read, levels);
    }
  }
}

TEST(Levels, RefusesWhatIsBeyondThem) {
  std::vector<std::int32_t> levels(3);
  EXPECT_EQ(UnpackLevels(std::vector<std::byte>(2), 1, levels).code(),
            absl::StatusCode::kOutOfRange)
      << "three of two bits are one byte";
  EXPECT_EQ(UnpackLevels(std::vector{std::byte{0b00'11'01'00}}, 1, levels).code(),
            absl::StatusCode::kOutOfRange)
      << "3 is none of three";
  EXPECT_EQ(UnpackLevels(std::vector{std::byte{0b01'00'01'00}}, 1, levels).code(),
            absl::StatusCode::kOutOfRange)
      << "spare bits";
  EXPECT_EQ(UnpackLevels(std::vector{std::byte{0b00'10'01'00}}, 1, levels), absl::OkStatus());
  EXPECT_EQ(levels, (std::vector<std::int32_t>{-1, 0, 1}));
}

}  // namespace
}  // namespace starling::compression
