// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/csv_reader.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Rows = std::vector<std::vector<std::string>>;

absl::StatusOr<Rows> Read(std::string_view text, char delimiter = ',') {
  CsvReader reader(text, delimiter);
  std::vector<std::string_view> cells;
  Rows rows;
  while (true) {
    const auto more = reader.Next(cells);
    if (!more.ok()) return more.status();
    if (!*more) return rows;
    rows.emplace_back(cells.begin(), cells.end());
  }
}

Rows MustRead(std::string_view text, char delimiter = ',') {
  auto rows = Read(text, delimiter);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.value_or(Rows{});
}

TEST(CsvReader, CellsAreSplitAndBlanksAroundThemDropped) {
  EXPECT_THAT(MustRead("a, b ,c\n1,2,3\n"),
              ElementsAre(ElementsAre("a", "b", "c"), ElementsAre("1", "2", "3")));
}

TEST(CsvReader, EmptyCellsCount) {
  EXPECT_THAT(MustRead(",a,\n,,"), ElementsAre(ElementsAre("", "a", ""), ElementsAre("", "", "")));
}

TEST(CsvReader, QuotedCellsMayHoldAnything) {
  EXPECT_THAT(
      MustRead("\"a,b\", \"say \"\"x\"\"\" ,\"two\nlines\"\n1,2,3"),
      ElementsAre(ElementsAre("a,b", "say \"x\"", "two\nlines"), ElementsAre("1", "2", "3")));
}

TEST(CsvReader, AnyDelimiterWindowsLineEndsByteOrderMarkAndEmptyLines) {
  EXPECT_THAT(MustRead("\xEF\xBB\xBF"
                       "1;2\r\n\r\n\n3;4\r\n\r\n",
                       ';'),
              ElementsAre(ElementsAre("1", "2"), ElementsAre("3", "4")));
  EXPECT_THAT(MustRead("1\t2\n", '\t'), ElementsAre(ElementsAre("1", "2")));
  EXPECT_THAT(MustRead("1 2\n", ' '), ElementsAre(ElementsAre("1", "2")));
  EXPECT_THAT(MustRead(""), ElementsAre());
  EXPECT_THAT(MustRead("\n\r\n"), ElementsAre());
}

TEST(CsvReader, LinesAreCountedThroughEmptyOnesAndQuotedNewlines) {
  CsvReader reader("a\n\n\"x\ny\"\nb\n", ',');
  std::vector<std::string_view> cells;
  std::vector<std::int64_t> lines;
  while (reader.Next(cells).value()) lines.push_back(reader.line());
  EXPECT_THAT(lines, ElementsAre(1, 3, 5));
}

TEST(CsvReader, WrongQuotesNameLineAndColumn) {
  EXPECT_THAT(std::string(Read("1,2\n3,\"4\n").status().message()),
              HasSubstr("line 2, column 2: a quote is opened"));
  EXPECT_THAT(std::string(Read("\"1\"x,2\n").status().message()),
              HasSubstr("line 1, column 1: there is text after"));
}

TEST(CsvReader, RandomBytesNeverCrashIt) {
  std::mt19937 random(5);
  constexpr std::string_view kAlphabet = "\"\"\n\r,, a1\xEF\xBB\xBF\t";
  for (int round = 0; round < 20'000; ++round) {
    std::string text(random() % 24, ' ');
    for (char& c : text) c = kAlphabet[random() % kAlphabet.size()];
    const auto rows = Read(text);
    if (!rows.ok()) continue;
    for (const auto& row : *rows) EXPECT_FALSE(row.empty());
  }
}

}  // namespace
}  // namespace starling::data
