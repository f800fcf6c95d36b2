// SPDX-License-Identifier: Apache-2.0
// Every row in its short form. `starling-techniques` plays the long one.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/techniques/lesson.h"
#include "tests/techniques/report.h"
#include "tests/techniques/straggler_study.h"
#include "trainer/worker/numeric_environment.h"

namespace starling::techniques {
namespace {

std::string Page() {
  std::ifstream file(STARLING_SOURCE_DIR "/docs/techniques.md", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TechniqueTable : public testing::TestWithParam<std::size_t> {};

INSTANTIATE_TEST_SUITE_P(Rows, TechniqueTable, testing::Range<std::size_t>(0, Techniques().size()),
                         [](const auto& row) {
                           std::string name = Techniques()[row.param].row;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(TechniqueTable, TheCheckHoldsAndItsControlShowsTheHarm) {
  const Technique& technique = Techniques()[GetParam()];
  const Report report = Play(technique, /*seeds=*/1, Setting());
  bool controlled = false, judged = false;
  for (const Figure& figure : report.figures()) {
    EXPECT_TRUE(figure.holds()) << technique.row << ": " << Text(figure);
    controlled = controlled || (figure.control && figure.rule != Rule::kNone);
    judged = judged || (!figure.control && figure.rule != Rule::kNone);
  }
  EXPECT_TRUE(judged) << technique.row << " judges nothing";
  EXPECT_TRUE(controlled) << technique.row << " has no negative control";
  EXPECT_THAT(NotOnPage(Page(), technique, report), testing::IsEmpty())
      << "docs/techniques.md was made from another tree: run make techniques";
}

TEST(Report, WhatThePageDoesNotSayIsNamed) {
  const Technique row = {"PS-0", "Nothing (Nobody)", "nobody waits", "all do", nullptr};
  Report report;
  report.Each("seconds", 1000, Rule::kAtMost, 1000);
  report.Control("late ones", 5, Rule::kEqual, 5);
  report.Mean("digits: points", 1, Rule::kAtMost, 2);
  report.Tell("others", 7);
  const std::string page =
      "# Page\n\n## PS-0: Nothing (Nobody)\n\nNobody waits. Control: all do.\n\n"
      "| seconds | 900 | at most 1,000 | holds |\n| *control:* late ones | 5 | 5 | holds |\n\n"
      "## PS-1: Something\n\n| lower | 1 | 1 | holds |\n";
  EXPECT_THAT(NotOnPage(page, row, report), testing::IsEmpty());
  Report other = report;
  other.Each("lower", 1, Rule::kEqual, 1);
  EXPECT_THAT(NotOnPage(page, row, other), testing::ElementsAre("| lower | ... | 1 | holds |"))
      << "it is another row's";
  Report looser;
  looser.Each("seconds", 1, Rule::kAtMost, 2000);
  EXPECT_THAT(NotOnPage(page, row, looser), testing::SizeIs(1));
  Technique said = row;
  said.check = "somebody waits";
  EXPECT_THAT(NotOnPage(page, said, report), testing::SizeIs(1));
  said.row = "PS-9";
  EXPECT_THAT(NotOnPage(page, said, report), testing::ElementsAre("PS-9: the row"));
}

TEST(Stragglers, WhoDoesNotWaitForTheSlowestIsSooner) {
  const StragglerResult study = StragglerStudy(/*seeds=*/1, /*without=*/false);
  EXPECT_THAT(study.runs, testing::SizeIs(4));
  EXPECT_THAT(NotSooner(study.runs), testing::IsEmpty());
}

TEST(Stragglers, AModelThatGainsNothingOrIsNotThereIsNamed) {
  const std::vector<StragglerRun> runs = {{"bulkSynchronous", true, 1, 100},
                                          {"bulkSynchronous", true, 2, 90},
                                          {"asynchronous", true, 1, 12},
                                          {"asynchronous", true, 2, 95},
                                          {"asynchronous", false, 1, 200}};
  EXPECT_THAT(NotSooner(runs), testing::ElementsAre(testing::HasSubstr("asynchronous, seed 2")));
  EXPECT_THAT(NotSooner({{"backupWorkers, 1 of 8", true, 1}}), testing::SizeIs(1))
      << "nothing to compare with";
  EXPECT_THAT(NotSooner({}), testing::SizeIs(1));
}

TEST(Lesson, IsMnistInTheLongFormWhereThereIsAnEngine) {
  const std::shared_ptr<const Problem> some = LeastSquares();
  EXPECT_EQ(LessonOf({1, true, some}).name, kMnist);
  EXPECT_EQ(LessonOf({1, true, some}).problem, some);
  EXPECT_EQ(LessonOf({1, true, nullptr}).name, kDigits);
  EXPECT_EQ(LessonOf({1, false, some}).name, kDigits);
}

TEST(Lesson, TheWorkersEngineLearnsMnist) {
  worker::PrepareNumericEnvironment();
  const auto mnist = Mnist();
  if (!mnist.ok()) GTEST_SKIP() << mnist.status();
  const Lesson lesson = LessonOf({1, true, *mnist});
  ClusterOptions options = ClusterOf(lesson, 1, consistency::BulkSynchronous{4}, lesson.rate);
  options.leases = 0;
  EXPECT_EQ(techniques::Run(options).parameters, (*mnist)->First(1)) << "where every model begins";
  EXPECT_NE((*mnist)->First(1), (*mnist)->First(2));
  EXPECT_LT(AccuracyOf(options), 30);
  options.leases = 500;  // one pass
  EXPECT_GT(AccuracyOf(options), 70);
}

TEST(Report, AFigureThatBreaksItsBoundFailsTheRow) {
  Report report;
  report.Each("wait", 0.5, Rule::kAtMost, 1);
  EXPECT_TRUE(report.holds());
  report.Each("wait", 1.5, Rule::kAtMost, 1);
  EXPECT_FALSE(report.holds());
}

TEST(Report, AMeanIsJudgedOverAllSeeds) {
  Report report;
  report.Mean("gain", -1, Rule::kAtLeast, 0);
  EXPECT_FALSE(report.holds());
  report.Mean("gain", 3, Rule::kAtLeast, 0);
  EXPECT_TRUE(report.holds());
  EXPECT_THAT(Text(report.figures()[0]), testing::HasSubstr("gain: 1 [-1, 3], mean at least 0"));
}

TEST(Report, WhatIsNotANumberHoldsToNoBound) {
  Report report;
  report.Each("loss", std::nan(""), Rule::kAtMost, 1);
  EXPECT_FALSE(report.holds());
}

}  // namespace
}  // namespace starling::techniques
