// SPDX-License-Identifier: Apache-2.0
#include "common/flags/flags.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::flags {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Given {
  std::string spec;
  std::string output;
  absl::Duration timeout = absl::Seconds(1);
  bool all = true;
  std::vector<std::string> words;
  absl::Status status;
  std::string unknown;
};

Given Parsed(const std::vector<std::string>& arguments) {
  Given given;
  App app;
  app.add_option("--spec", given.spec)->required();
  app.add_option("-o,--output", given.output);
  app.AddDuration("--timeout", given.timeout, absl::Milliseconds(100));
  app.add_flag("-A,--all", given.all);
  app.add_option("words", given.words)->take_all();
  given.status = app.Parse(arguments);
  given.unknown = app.Unknown();
  return given;
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  return std::string(Parsed(arguments).status.message());
}

TEST(Flags, ComeInEveryUsualForm) {
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"--spec", "s", "-o", "json", "a"},
                                             {"a", "--spec=s", "-ojson"},
                                             {"-o=json", "a", "--spec=s"},
                                             {"-Ao", "json", "a", "--spec=s"},
                                             {"--output=json", "--spec=s", "--", "a"}}) {
    const Given given = Parsed(words);
    EXPECT_TRUE(given.status.ok()) << given.status;
    EXPECT_EQ(given.spec, "s");
    EXPECT_EQ(given.output, "json");
    EXPECT_THAT(given.words, ElementsAre("a"));
  }
}

TEST(Flags, ValuesMayLookLikeFlagsAndTheLastOneCounts) {
  const Given given = Parsed({"--spec=a", "b", "--spec", "-1", "--output", "x=[1,2]",
                              "--timeout=2s", "--all=false", "--", "--c", "-"});
  EXPECT_TRUE(given.status.ok()) << given.status;
  EXPECT_EQ(given.spec, "-1");
  EXPECT_EQ(given.output, "x=[1,2]");
  EXPECT_THAT(given.words, ElementsAre("b", "--c", "-"));
  EXPECT_EQ(given.timeout, absl::Seconds(2));
  EXPECT_FALSE(given.all);
  EXPECT_EQ(given.unknown, "");
}

TEST(Flags, WhatIsNotGivenKeepsItsValue) {
  const Given given = Parsed({"--spec=s"});
  EXPECT_EQ(given.timeout, absl::Seconds(1));
  EXPECT_TRUE(given.all);
  EXPECT_THAT(given.words, IsEmpty());
}

TEST(Flags, MistakesNameTheFlagAndTheRemedy) {
  EXPECT_EQ(ErrorOf({}), "--spec is required");
  EXPECT_EQ(ErrorOf({"--spec"}), "--spec needs a value");
  EXPECT_THAT(ErrorOf({"--spec=s", "--timeout=soon"}), HasSubstr("--timeout: \"soon\" must be a"));
  EXPECT_THAT(ErrorOf({"--spec=s", "--timeout=1ms"}), HasSubstr("not shorter than 100ms"));
  EXPECT_THAT(ErrorOf({"--spec=s", "--all=perhaps"}), HasSubstr("--all = perhaps"));
  EXPECT_EQ(ErrorOf({"--specs=s", "b"}), "unknown flag --specs");
  EXPECT_EQ(Parsed({"--specs=s"}).unknown, "--specs");
  EXPECT_EQ(Parsed({"--spec=s", "-x"}).unknown, "-x");
}

TEST(Flags, ASwitchMayRefuseValues) {
  App app;
  app.add_flag("--all")->disable_flag_override();
  EXPECT_EQ(app.Parse({"--all=yes"}).message(), "--all takes no value");
}

TEST(Flags, WordsAreRefusedWhereNoneAreTaken) {
  App app;
  bool all = false;
  app.add_flag("--all", all);
  EXPECT_EQ(app.Parse({"--all", "stray"}).message(), "unexpected argument stray");
}

}  // namespace
}  // namespace starling::flags
