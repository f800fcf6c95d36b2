// SPDX-License-Identifier: Apache-2.0
#include "api/yaml/yaml.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "api/spec/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::yaml {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

std::string Repeat(std::string_view piece, std::size_t bytes) {
  std::string text;
  while (text.size() + piece.size() <= bytes) text += piece;
  return text;
}

std::string ErrorOf(std::string_view text) {
  const auto value = Parse(text);
  return value.ok() ? "no error: " + json::Dump(*value) : std::string(value.status().message());
}

struct Scalar {
  std::string yaml;
  std::string json;
};

class ScalarOf : public ::testing::TestWithParam<Scalar> {};

TEST_P(ScalarOf, MeansWhatTheCoreSchemaSays) {
  const auto value = Parse("a: " + GetParam().yaml);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(json::Dump((*value)["a"]), GetParam().json);
}

INSTANTIATE_TEST_SUITE_P(
    All, ScalarOf,
    ::testing::Values(Scalar{"true", "true"}, Scalar{"False", "false"}, Scalar{"yes", "\"yes\""},
                      Scalar{"no", "\"no\""}, Scalar{"on", "\"on\""}, Scalar{"~", "null"},
                      Scalar{"null", "null"}, Scalar{"", "null"}, Scalar{"\"\"", "\"\""},
                      Scalar{"3", "3"}, Scalar{"-3", "-3"}, Scalar{"+3", "3"}, Scalar{"0", "0"},
                      Scalar{"9007199254740993", "9007199254740993"}, Scalar{"0.05", "0.05"},
                      Scalar{".5", "0.5"}, Scalar{"1.", "1.0"}, Scalar{"-1e-8", "-1e-08"},
                      Scalar{"0777", "\"0777\""}, Scalar{"0x10", "\"0x10\""},
                      Scalar{"0o7", "\"0o7\""}, Scalar{"1_000", "\"1_000\""},
                      Scalar{"12e", "\"12e\""}, Scalar{".", "\".\""}, Scalar{".inf", "\".inf\""},
                      Scalar{".nan", "\".nan\""}, Scalar{"2026-01-31", "\"2026-01-31\""},
                      Scalar{"'3'", "\"3\""}, Scalar{"\"true\"", "\"true\""},
                      Scalar{"'null'", "\"null\""}, Scalar{"30s", "\"30s\""},
                      Scalar{"|\n  x\n   y", "\"x\\n y\""}, Scalar{"a:b", "\"a:b\""},
                      Scalar{"x # comment", "\"x\""}, Scalar{"[1, {b: c}]", R"([1,{"b":"c"}])"}));

struct Refused {
  std::string yaml;
  std::string place;  // how the answer begins
  std::string says;
};

class RefusedYaml : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedYaml, IsAnsweredWithItsPlaceAndReason) {
  EXPECT_THAT(ErrorOf(GetParam().yaml),
              AllOf(StartsWith(GetParam().place), HasSubstr(GetParam().says)));
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedYaml,
    ::testing::Values(
        Refused{"a: 1\nb: 2\na: 3", "line 3, column 1", "\"a\" stands twice"},
        Refused{"{a: 1, \"a\": 2}", "line 1, column 8", "\"a\" stands twice"},
        Refused{"a: &x 1\nb: *x", "line 1, column 4", "anchor"},
        Refused{"&x\n- *x", "line 1, column 1", "anchor"}, Refused{"a: *x", "line 1", "anchor"},
        Refused{"<<: {a: 1}", "line 1, column 1", "merge key"},
        Refused{"a: !!str 1", "line 1, column 4", "tag"},
        Refused{"a: !mine {}", "line 1, column 4", "tag"},
        Refused{"a: 1\n---\nb: 2", "line 2, column 1", "second document"},
        Refused{"? [a]\n: b", "line 1, column 3", "key"},
        Refused{": b", "line 1, column 1", "empty key"},
        Refused{"~: b", "line 1, column 1", "empty key"},
        Refused{"a: 1e999", "line 1, column 4", "beyond what a double holds"},
        Refused{"a: [1", "line 1", "not valid YAML"}, Refused{"[1", "line 1", "never closed"},
        Refused{"a:\n\t- b", "line 2, column 2", "not valid YAML"},
        Refused{"a: b: c", "line 1, column 5", "not valid YAML"}, Refused{"", "", "nothing in it"},
        Refused{"# only a comment\n", "", "nothing in it"}, Refused{"a: \xff", "", "not UTF-8"},
        Refused{"b: 1\na: \x01", "line 2", "control"},
        Refused{std::string("a: 1\n\0", 6), "line 2", "control"},
        Refused{"a: \"\\ud800\"", "line 1", "unicode"}));

TEST(Yaml, AnswersAnAliasBombAtOnce) {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c <= 'i'; ++c) {
    const std::string before(1, static_cast<char>(c - 1)), name(1, c);
    bomb.append(name).append(": &").append(name).append(" [");
    for (int i = 0; i < 9; ++i) bomb += (i == 0 ? "*" : ", *") + before;
    bomb += "]\n";
  }
  EXPECT_THAT(ErrorOf(bomb), HasSubstr("line 1, column 4: an anchor"));
}

TEST(Yaml, AcceptsExactlyTheAllowedDepthAndNumberOfValues) {
  std::string flow = "x", block;
  for (int i = 0; i < 64; ++i) flow.insert(0, "[").append("]");
  EXPECT_TRUE(Parse(flow).ok());
  EXPECT_THAT(ErrorOf("[" + flow + "]"), HasSubstr("nested more than 64 deep"));
  for (std::size_t i = 0; i < 65; ++i) block += std::string(i, ' ') + "a:\n";
  EXPECT_THAT(ErrorOf(block), HasSubstr("line 65, column 65: nested more than 64 deep"));
  const std::string full = Repeat("- 1\n", 4 * (kLimits.nodes - 1));  // and the list itself
  EXPECT_TRUE(Parse(full).ok());
  EXPECT_THAT(ErrorOf(full + "- 1\n"), HasSubstr("line 100000, column 3: more than 100000 values"));
}

// Each at the largest size that the parser is given; ten times that is refused unread.
class Hostile : public ::testing::TestWithParam<std::string> {};

TEST_P(Hostile, TextIsAnsweredInBoundedTime) {
  const std::string huge = Repeat(GetParam(), 10U << 20U);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(ErrorOf(huge), HasSubstr("at most 1048576 are read"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  const auto value = Parse(Repeat(GetParam(), kLimits.bytes));
  EXPECT_TRUE(!value.ok() || value->is_string());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // under asan
}

INSTANTIATE_TEST_SUITE_P(All, Hostile,
                         ::testing::Values("[", "{", "- ", "{a: ", "[a: ", "? ", "[?", "a,", "a ",
                                           "!t ", "&a ", "a:", ": ", "\"", "'", "---\n", "- a\n",
                                           "a: 1\n", "a\n"));

TEST(Yaml, WhatItWritesItReads) {
  const Json value = Json::parse(R"({
    "plain": "digits", "uri": "/a/b.csv", "empty": "", "no": "no", "number": "3", "colon": "a: b",
    "dash": "-x", "lines": "a\nb\t\"c\"\\", "umlaut": "ä", "hash": "a #b", "time": "12:30:00",
    "int": -3, "float": 0.1, "tiny": 1e-8, "whole": 5.0, "true": true, "null": null,
    "list": [1, "a", [2, []], {"b": {"c": {}}}, []], "a b": {"c/d": 1}, "1": {"y": 2}})");
  const std::string text = Write(value);
  const auto read = Parse(text);
  ASSERT_TRUE(read.ok()) << read.status() << "\n" << text;
  EXPECT_EQ(*read, value) << text;
  EXPECT_EQ(Write(Json("x")), "x\n");
  EXPECT_EQ(Write(Json::object()), "{}\n");
}

TEST(Yaml, WritesBlocksThatPeopleRead) {
  EXPECT_EQ(Write(Json::parse(R"({"a": {"b": [1, {"c": "no", "e": 2}]}, "d": "x"})")),
            "a:\n  b:\n  - 1\n  - c: \"no\"\n    e: 2\nd: x\n");
}

class JobFile : public ::testing::Test {
 protected:
  JobFile()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("starling_yaml_test." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~JobFile() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  const std::filesystem::path folder_;
};

TEST_F(JobFile, IsYamlUnlessItsNameEndsInJson) {
  EXPECT_EQ(ReadJobFile(Path("a.yaml", "a: [1]")).value(), Json::parse(R"({"a": [1]})"));
  EXPECT_EQ(ReadJobFile(Path("a.json", "{\"a\": [1]}")).value(), Json::parse(R"({"a": [1]})"));
  EXPECT_FALSE(ReadJobFile(Path("b.json", "a: [1]")).ok());
}

TEST_F(JobFile, ErrorsBeginWithTheFilesName) {
  const std::string path = Path("bad.yaml", "a: 1\na: 2");
  EXPECT_THAT(std::string(ReadJobFile(path).status().message()),
              StartsWith(path + ": line 2, column 1"));
  const std::string missing = (folder_ / "missing.yaml").string();
  EXPECT_EQ(ReadJobFile(missing).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadJobFile(missing).status().message()),
              HasSubstr("missing.yaml: cannot be read: No such file"));
  EXPECT_THAT(std::string(ReadJobFile(folder_.string()).status().message()),
              HasSubstr("Is a directory"));
  EXPECT_THAT(std::string(ReadJobFile(Path("empty.yaml", "")).status().message()),
              HasSubstr("nothing in it"));
  EXPECT_THAT(std::string(ReadJobFile(Path("null.json", "null")).status().message()),
              HasSubstr("nothing in it"));
}

TEST_F(JobFile, AWholeJobIsReadAndChecked) {
  const auto document = ReadJobFile(Path("digits.yaml", R"(
apiVersion: starling.dev/v1alpha1
kind: TrainingJob
metadata: {name: digits}
spec:
  workload: {classification: {model: {mlp: {hidden: [128, 64]}}}}
  dataset: {train: {csv: {uri: train.csv}}}
  checkpoint: {interval: 30}
)"));
  ASSERT_TRUE(document.ok()) << document.status();
  spec::CheckedJob job;
  EXPECT_EQ(spec::Format(spec::CheckJob(*document, job)),
            "spec.checkpoint.interval: must be a duration such as 500ms, 30s or 1h30m, not the "
            "number 30");
}

}  // namespace
}  // namespace starling::yaml
