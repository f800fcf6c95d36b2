// SPDX-License-Identifier: Apache-2.0
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/model/groups.h"
#include "trainer/model/search.h"
#include "trainer/model/searches.h"

namespace starling::model {

// Instead of the bytes of the struct, in the names of tests.
void PrintTo(const NamedSearch& search, std::ostream* out) { *out << search.line; }

namespace {

using ::testing::HasSubstr;
using ::testing::TestWithParam;
using ::testing::ValuesIn;

std::vector<NamedSearch> Quick(std::vector<NamedSearch> searches) {
  std::erase_if(searches, [](const NamedSearch& search) { return !search.quick; });
  return searches;
}

std::string NameOf(const ::testing::TestParamInfo<NamedSearch>& info) {
  std::string name = info.param.name;
  for (char& letter : name) letter = letter == ' ' || letter == ',' ? '_' : letter;
  return name;
}

std::string Told(const Result& result) {
  std::string told = result.violation;
  for (const std::string& event : result.events) told += "\n  " + event;
  return told;
}

class WithAllRules : public TestWithParam<NamedSearch> {};

TEST_P(WithAllRules, NothingIsFoundInAllStates) {
  const absl::StatusOr<Result> result = model::Run(GetParam().line);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->violation, "") << Told(*result);
  EXPECT_TRUE(result->exhausted);
}

INSTANTIATE_TEST_SUITE_P(Model, WithAllRules, ValuesIn(Quick(CleanSearches())), NameOf);

class WithoutOneRule : public TestWithParam<NamedSearch> {};

TEST_P(WithoutOneRule, HarmIsFound) {
  const absl::StatusOr<Result> result = model::Run(GetParam().line);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->violation, HasSubstr(GetParam().finds)) << Told(*result);
}

// The same bounds with the rule: it is the rule that keeps the harm away, not the bounds.
TEST_P(WithoutOneRule, AndNothingWithIt) {
  std::string line = GetParam().line;
  line.resize(line.find(" without="));
  const absl::StatusOr<Result> result = model::Run(line);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->violation, "") << Told(*result);
  EXPECT_TRUE(result->exhausted);
}

INSTANTIATE_TEST_SUITE_P(Model, WithoutOneRule, ValuesIn(NegativeControls()), NameOf);

TEST(RunTest, ALineThatIsNotUnderstoodIsRefusedByTheWordThatIsWrong) {
  EXPECT_THAT(model::Run("").status().message(), HasSubstr("groups, dense-sparse or client"));
  EXPECT_THAT(model::Run("groups without=luck").status().message(), HasSubstr("luck"));
  EXPECT_THAT(model::Run("groups crashes=many").status().message(), HasSubstr("crashes=many"));
  EXPECT_THAT(model::Run("groups first=ring:01").status().message(), HasSubstr("ring:01"));
  EXPECT_THAT(model::Run("groups views=9").status().message(), HasSubstr("at most"));
  EXPECT_THAT(model::Run("dense-sparse steps=5").status().message(), HasSubstr("at most"));
}

// Counts to a number by ones and twos; whoever stands on `bad` is wrong, on `dead` stuck.
struct Counter {
  struct State {
    std::uint64_t at;
  };
  std::uint64_t most, bad, dead;

  State Initial() const { return {0}; }
  void Next(const State& state, Successors<State>& next) const {
    for (const std::uint64_t by : {1U, 2U}) {
      if (state.at + by <= most)
        next.Add({state.at + by}, [&] { return "by " + std::to_string(by); });
    }
  }
  std::string Violation(const State& state) const { return state.at == bad ? "bad" : ""; }
  std::string Stuck(const State& state) const { return state.at == dead ? "dead" : ""; }
};

TEST(SearchTest, EveryStateIsVisitedOnce) {
  const Result result = Search(Counter{1000, 5000, 5000}, {});
  EXPECT_TRUE(result.exhausted);
  EXPECT_EQ(result.states, 1001U);
  EXPECT_EQ(result.violation, "");
}

TEST(SearchTest, TheShortestWayToAViolationIsToldInWords) {
  const Result result = Search(Counter{1000, 5, 5000}, {});
  EXPECT_EQ(result.violation, "bad");
  EXPECT_THAT(result.events, ::testing::ElementsAre("by 1", "by 2", "by 2"));
}

TEST(SearchTest, AStateFromWhichNothingFinishesIsFoundToo) {
  const Result result = Search(Counter{1000, 5000, 4}, {});
  EXPECT_EQ(result.violation, "dead");
  EXPECT_THAT(result.events, ::testing::ElementsAre("by 2", "by 2"));
}

TEST(SearchTest, WhatIsCutOffSaysSo) {
  Limits limits;
  limits.states = 100;
  const Result result = Search(Counter{1000, 5000, 5000}, limits);
  EXPECT_FALSE(result.exhausted);
}

TEST(SearchTest, AStateIsTheSameAfterItWasPacked) {
  GroupState state = GroupModel({}).Initial();
  state.settled[3][1] = 0x01020304;
  const GroupState unpacked = internal::Unpack<GroupState>(internal::Pack(state));
  EXPECT_EQ(std::memcmp(&unpacked, &state, sizeof(state)), 0);
}

}  // namespace
}  // namespace starling::model
