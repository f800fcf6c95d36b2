// SPDX-License-Identifier: Apache-2.0
#include "common/ranges/ranges.h"

#include "gtest/gtest.h"

namespace starling::ranges {
namespace {

TEST(PartOf, PartsOfAnyNumberCoverAllInOrderAndDifferByOneAtMost) {
  for (int length = 0; length <= 40; ++length) {
    for (int parts = 1; parts <= 20; ++parts) {
      int next = 0;
      for (int index = 0; index < parts; ++index) {
        const Range<int> part = PartOf(length, index, parts);
        EXPECT_EQ(part.begin, next);
        EXPECT_GE(part.size(), length / parts);
        EXPECT_LE(part.size(), length / parts + 1);
        next = part.end;
      }
      EXPECT_EQ(next, length);
    }
  }
}

TEST(PieceOf, PiecesCoverTheirRangeAndTheLastIsShort) {
  const Range<int> whole{3, 14};
  EXPECT_EQ(PiecesOf(whole, 4), 3);
  EXPECT_EQ(PieceOf(whole, 0, 4), (Range<int>{3, 7}));
  EXPECT_EQ(PieceOf(whole, 2, 4), (Range<int>{11, 14}));
  EXPECT_EQ(PiecesOf(Range<int>{5, 5}, 4), 0);
}

}  // namespace
}  // namespace starling::ranges
