// SPDX-License-Identifier: Apache-2.0
#include "common/http/conditional.h"

#include <ostream>

#include "gtest/gtest.h"

namespace starling::http {
namespace {

TEST(EntityTags, AreFoundInListsStrongOrWeak) {
  EXPECT_TRUE(HoldsTag("\"12\"", "12"));
  EXPECT_TRUE(HoldsTag(" W/\"11\" , W/\"12\"", "12"));
  EXPECT_TRUE(HoldsTag("*", "12"));
  EXPECT_FALSE(HoldsTag("\"1\", \"2\"", "12"));
  EXPECT_FALSE(HoldsTag("12", "12"));
  EXPECT_FALSE(HoldsTag("", ""));
}

struct RangeCase {
  const char* header;
  ByteRange::Kind kind;
  std::uint64_t first, last;
};
std::ostream& operator<<(std::ostream& out, const RangeCase& c) { return out << c.header; }

class Ranges : public ::testing::TestWithParam<RangeCase> {};

TEST_P(Ranges, OfAHundredBytes) {
  const RangeCase& c = GetParam();
  const ByteRange range = ParseRange(c.header, 100);
  EXPECT_EQ(range.kind, c.kind);
  if (c.kind != ByteRange::Kind::kPart) return;
  EXPECT_EQ(range.first, c.first);
  EXPECT_EQ(range.last, c.last);
}

constexpr auto kPart = ByteRange::Kind::kPart;
constexpr auto kRefused = ByteRange::Kind::kUnsatisfiable;
constexpr RangeCase kRanges[] = {
    {"", ByteRange::Kind::kWhole, 0, 0}, {"lines=1-2", ByteRange::Kind::kWhole, 0, 0},
    {"bytes=0-0", kPart, 0, 0},          {"bytes=10-19", kPart, 10, 19},
    {"bytes=90-", kPart, 90, 99},        {"bytes=90-500", kPart, 90, 99},
    {"bytes=-7", kPart, 93, 99},         {"bytes=-700", kPart, 0, 99},
    {"bytes=100-", kRefused, 0, 0},      {"bytes=5-4", kRefused, 0, 0},
    {"bytes=-0", kRefused, 0, 0},        {"bytes=-", kRefused, 0, 0},
    {"bytes=+1-2", kRefused, 0, 0},      {"bytes=1", kRefused, 0, 0},
    {"bytes=0-1,2-3", kRefused, 0, 0},   {"bytes=99999999999999999999-", kRefused, 0, 0}};
INSTANTIATE_TEST_SUITE_P(ByteRange, Ranges, ::testing::ValuesIn(kRanges));

TEST(Ranges, OfNothingThereIsNone) { EXPECT_EQ(ParseRange("bytes=0-", 0).kind, kRefused); }

}  // namespace
}  // namespace starling::http
