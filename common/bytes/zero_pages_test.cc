// SPDX-License-Identifier: Apache-2.0
#include "common/bytes/zero_pages.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace starling::bytes {
namespace {

TEST(ZeroPages, AreZeroAndMoveWithoutBeingCopied) {
  ZeroPages none, empty(0), some(5'000'001);
  EXPECT_TRUE(none.bytes().empty());
  EXPECT_TRUE(empty.bytes().empty());
  ASSERT_EQ(some.bytes().size(), 5'000'001U);
  EXPECT_TRUE(std::ranges::all_of(some.bytes(), [](std::byte one) { return one == std::byte{0}; }));
  some.bytes().back() = std::byte{7};
  const std::byte* const begin = some.bytes().data();
  ZeroPages moved(std::move(some));
  EXPECT_EQ(moved.bytes().data(), begin);
  EXPECT_EQ(moved.bytes().back(), std::byte{7});
  none = std::move(moved);
  EXPECT_EQ(none.bytes().data(), begin);
}

std::size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(ZeroPages, CostNothingUntilTheyAreTouched) {
  constexpr std::size_t kMuch = std::size_t{1} << 31, kLittle = 32 << 20;
  const std::size_t before = ResidentBytes();
  ZeroPages much(kMuch);
  much.bytes().back() = std::byte{1};
  EXPECT_EQ(much.bytes().front(), std::byte{0});
  EXPECT_LT(ResidentBytes(), before + kLittle);
}

}  // namespace
}  // namespace starling::bytes
