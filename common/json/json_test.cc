// SPDX-License-Identifier: Apache-2.0
#include "common/json/json.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::json {
namespace {

using ::testing::HasSubstr;

std::string Repeat(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

std::string ErrorOf(std::string_view text, const Limits& limits = {}) {
  const auto value = Parse(text, limits);
  return value.ok() ? "no error" : std::string(value.status().message());
}

TEST(Json, ParsesWhatIsValidAndDumpsItSorted) {
  const auto value = Parse(R"( {"b": [1, -2, 2.5, true, null], "a": {"é": "\ud83d\ude00"}} )");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(Dump(*value), R"({"a":{"é":"😀"},"b":[1,-2,2.5,true,null]})");
  EXPECT_EQ(Parse(Dump(*value)).value(), *value);
  EXPECT_EQ(Parse(DumpPretty(*value)).value(), *value);
}

struct Refused {
  std::string text;
  std::string says;
};

class RefusedJson : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedJson, IsAnsweredWithItsReason) {
  EXPECT_THAT(ErrorOf(GetParam().text), HasSubstr(GetParam().says)) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedJson,
    ::testing::Values(Refused{"", "line 1, column 1"}, Refused{"{\n  \"a\": 1,\n}", "line 3"},
                      Refused{"{'a': 1}", "line 1"}, Refused{"{a: 1}", "line 1"},
                      Refused{"[1, 2,]", "line 1, column 7"}, Refused{"1 2", "line 1"},
                      Refused{"{} // no", "line 1"}, Refused{"NaN", "line 1"},
                      Refused{"1e400", "1e400"}, Refused{"01", "line 1"}, Refused{"+1", "line 1"},
                      Refused{R"({"a": {"b": 1, "b": 2}})", "\"b\" stands twice"},
                      Refused{"\"\xff\"", "UTF-8"}, Refused{R"("\ud800")", "surrogate"},
                      Refused{std::string("{}\0{}", 5), "NUL byte at offset 2"},
                      Refused{std::string("\"a\0b\"", 5), "NUL byte"}));

TEST(Json, AcceptsExactlyTheAllowedDepth) {
  EXPECT_TRUE(Parse(Repeat("[", 64) + Repeat("]", 64)).ok());
  EXPECT_THAT(ErrorOf(Repeat("[", 65) + Repeat("]", 65)), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(ErrorOf(Repeat("{\"a\":", 65)), HasSubstr("at a.a.a"));
}

TEST(Json, AnswersTenMegabytesOfNestingWithoutRecursion) {
  EXPECT_THAT(ErrorOf(Repeat("[", 10U << 20U)), HasSubstr("nested more than 64 deep"));
}

TEST(Json, BoundsSizeAndNumberOfValues) {
  EXPECT_TRUE(Parse("[1,2,3]", {.nodes = 4}).ok());
  EXPECT_THAT(ErrorOf("[1,2,3,4]", {.nodes = 4}), HasSubstr("more than 4 values"));
  EXPECT_THAT(ErrorOf("[[],[],[],[]]", {.nodes = 4}), HasSubstr("more than 4 values"));
  EXPECT_TRUE(Parse("[1]", {.bytes = 3}).ok());
  EXPECT_THAT(ErrorOf("[11]", {.bytes = 3}), HasSubstr("at most 3"));
}

TEST(Json, DumpNeverThrows) {
  EXPECT_EQ(Dump(nlohmann::json("\xff")), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(Dump(nlohmann::json(std::numeric_limits<double>::quiet_NaN())), "null");
  EXPECT_EQ(DumpPretty(nlohmann::json("\xff")), "\"\xEF\xBF\xBD\"");
}

TEST(Json, KnowsWhatIsUtf8) {
  for (const char* text : {"", "a", "\xC2\x80", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF", "é😀z"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  for (const char* text : {"\x80", "\xC1\x80", "\xC2", "a\xC2z", "\xE0\x9F\xBF", "\xED\xA0\x80",
                           "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

TEST(Json, DescribesValuesForMessages) {
  EXPECT_EQ(Describe(nlohmann::json::array()), "a list");
  EXPECT_EQ(Describe(nlohmann::json::object()), "an object");
  EXPECT_EQ(Describe(nlohmann::json(3)), "the number 3");
  EXPECT_EQ(Describe(nlohmann::json("x")), "the text \"x\"");
  EXPECT_EQ(Describe(nlohmann::json(nullptr)), "null");
}

}  // namespace
}  // namespace starling::json
