// SPDX-License-Identifier: Apache-2.0
#include "common/bytes/checksum.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

#include "common/bytes/bytes.h"

namespace starling::bytes {
namespace {

std::string Of(std::string_view text) {
  Checksum checksum;
  checksum.Update(View(text));
  return ToHex(checksum.Finish());
}

// As `xxhsum -H2` prints them.
TEST(Checksum, IsXxh3) {
  EXPECT_EQ(Of(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Of("abc"), "06b05ab6733a618578af5f94892f3950");
}

TEST(Checksum, DoesNotDependOnHowBytesAreCut) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(1 << 20);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  Checksum whole;
  whole.Update(bytes);
  for (const std::size_t piece : {std::size_t{1000}, std::size_t{65536}, bytes.size() - 1}) {
    Checksum cut;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      cut.Update(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
    EXPECT_EQ(cut.Finish(), whole.Finish());
  }
}

TEST(Checksum, NoticesEachBit) {
  std::vector<std::byte> bytes(300);
  Checksum given;
  given.Update(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    Checksum damaged;
    damaged.Update(bytes);
    ASSERT_NE(damaged.Finish(), given.Finish()) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
  }
}

}  // namespace
}  // namespace starling::bytes
