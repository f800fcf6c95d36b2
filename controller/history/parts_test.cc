// SPDX-License-Identifier: Apache-2.0
// What of the history is pure: curves, records, what is forgotten.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "controller/history/curves.h"
#include "controller/history/record.h"
#include "controller/history/retention.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::history {
namespace {

using kube::Json;
using ::testing::ElementsAre;

std::vector<std::int64_t> StepsOf(const Points& curve) {
  std::vector<std::int64_t> steps;
  for (const Point& point : curve) steps.push_back(point.step);
  return steps;
}

TEST(CurveTest, KeepsItsShapeItsEndsItsPeaksAndItsSize) {
  Points curve;
  for (int step = 0; step < 100'000; ++step) {
    const double value = step == 777 ? 1e9 : step == 50'001 ? -1e9 : step * 2.0;
    AddPoint({step, step * 0.5, value}, curve);
    ASSERT_LT(curve.size(), kMostPoints);
  }
  EXPECT_GE(curve.size(), kMostPoints / 2 - 2);
  EXPECT_EQ(curve.front().step, 0);
  EXPECT_EQ(curve.back().step, 99'999);
  EXPECT_THAT(curve, testing::Contains(Point{777, 388.5, 1e9}));
  EXPECT_THAT(curve, testing::Contains(Point{50'001, 25'000.5, -1e9}));
  for (std::size_t i = 1; i < curve.size(); ++i) {
    EXPECT_GT(curve[i].step, curve[i - 1].step);
    EXPECT_LE(curve[i].step - curve[i - 1].step, 2 * 100'000 / 499 + 1) << "no stretch is empty";
  }
}

TEST(CurveTest, GivesFewerPointsFromAStepOnWithTheLast) {
  Points curve;
  for (int step = 0; step < 100; ++step) AddPoint({step, 0, 0}, curve);
  EXPECT_EQ(Select(curve, 50, 100).size(), 50U);
  EXPECT_THAT(StepsOf(Select(curve, 50, 1)), ElementsAre(99));
  EXPECT_THAT(StepsOf(Select(curve, 50, 2)), ElementsAre(50, 99));
  for (std::size_t most = 1; most < 60; ++most) {
    const Points few = Select(curve, 50, most);
    EXPECT_LE(few.size(), most);
    EXPECT_EQ(few.back().step, 99);
  }
  EXPECT_TRUE(Select(curve, 100, 3).empty());
  EXPECT_TRUE(Select({}, 0, 3).empty());
}

TEST(CurveTest, StepsAsLargeAsTheyMayBeAreThinned) {
  const std::int64_t large = std::int64_t{1} << 53;
  Points curve;
  for (int i = 0; i < 3000; ++i) AddPoint({i == 2999 ? large : i, 0, 1.0 * i}, curve);
  EXPECT_EQ(curve.back().step, large);
  EXPECT_LT(curve.size(), kMostPoints);
}

TEST(CurveTest, StepsThatAreMadeAgainReplaceWhatTheyWere) {
  Points curve;
  for (const int step : {1, 2, 3, 2, 2, 4}) AddPoint({step, 0, 1.0 * step}, curve);
  EXPECT_THAT(StepsOf(curve), ElementsAre(1, 2, 4));
}

TEST(CurveTest, TimeDoesNotGoBack) {
  Points curve;
  AddPoint({1, 5.5, 1}, curve);
  AddPoint({2, 5.25, 2}, curve);  // the job's last state, noticed after its end
  EXPECT_EQ(curve[1], (Point{2, 5.5, 2}));
  EXPECT_EQ(Joined(curve, {{3, 1, 3}})[2].seconds, 5.5);
}

TEST(CurveTest, ComesFromTheStatusAndCountsFromTheJobsStart) {
  const Json job = {{"status",
                     {{"startTime", "2026-01-01T00:00:00Z"},
                      {"progress",
                       {{"step", 7},
                        {"loss", 0.5},
                        {"samplesPerSecond", "many"},
                        {"metrics", {{"validation/accuracy", 1}, {std::string(300, 'x'), 1}}}}}}}};
  const absl::Time now = absl::FromUnixSeconds(1'767'225'600) + absl::Seconds(90);
  const auto points = PointsOf(job, now);
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points.at("loss"), (Point{7, 90, 0.5}));
  EXPECT_EQ(points.at("validation/accuracy"), (Point{7, 90, 1}));
  EXPECT_TRUE(PointsOf(Json::object(), now).empty());
  EXPECT_TRUE(PointsOf({{"status", {{"progress", {{"loss", 1}}}}}}, now).empty());
}

TEST(CurveTest, IsReadAsItWasWrittenAndWhatIsNoPointPassedOver) {
  const Points curve = {{1, 0.1, 1e-300}, {std::int64_t{1} << 53, 2, -0.25}};
  EXPECT_EQ(PointsFromJson(Json::parse(json::Dump(ToJson(curve)))), curve);
  EXPECT_EQ(PointsFromJson(Json::parse(R"([[1,2,3],[1,2],"x",[null,1,2],[2,0,null]])")).size(), 1U);
  EXPECT_TRUE(PointsFromJson(Json("x")).empty());
}

TEST(CurveTest, GoesOnWhereWhatIsKnownEnds) {
  EXPECT_THAT(StepsOf(Joined({{1, 0, 0}, {5, 0, 0}}, {{4, 0, 0}, {5, 0, 0}, {6, 0, 0}})),
              ElementsAre(1, 5, 6));
  EXPECT_THAT(StepsOf(Joined({}, {{4, 0, 0}})), ElementsAre(4));
}

Json NoSummary(const Json&) { return Json::object(); }

TEST(RecordTest, OfAStrangeObjectIsEmptyAndNeverThrows) {
  for (const Json& strange : {Json(), Json("x"), Json::array(), Json{{"metadata", 5}},
                              Json{{"metadata", {{"resourceVersion", "abc"}, {"uid", 5}}}}}) {
    const Record record = MakeRecord(strange, "", NoSummary);
    EXPECT_EQ(record.version, 0);
    EXPECT_EQ(record.uid, "");
  }
}

TEST(RecordTest, KeepsTheNewestIncidentsAndWhatBecameKnownOfThem) {
  std::vector<Json> known;
  for (int i = 0; i < 500; ++i) {
    known = MergeIncidents(std::move(known), {{{"time", absl::StrCat(1000 + i)}}});
  }
  ASSERT_EQ(known.size(), kMostIncidents);
  EXPECT_EQ(known.back()["time"], "1499");
  known = MergeIncidents(known, {{{"time", "1499"}, {"repeatedSteps", 1}}});
  ASSERT_EQ(known.size(), kMostIncidents);
  EXPECT_EQ(known.back()["repeatedSteps"], 1);
  EXPECT_EQ(MergeIncidents(known, Json("none")).size(), kMostIncidents);
}

TEST(RecordTest, EventsAreOfTheJobOrOfItsPods) {
  const Json job = {{"metadata", {{"name", "a"}, {"namespace", "n"}, {"uid", "1"}}}};
  const auto about = [&](Json regarding) {
    return IsAbout({{"metadata", {{"namespace", "n"}}}, {"regarding", std::move(regarding)}}, job);
  };
  EXPECT_TRUE(about({{"uid", "1"}}));
  EXPECT_TRUE(about({{"kind", "Pod"}, {"name", "a-worker-0"}}));
  EXPECT_TRUE(about({{"kind", "Pod"}, {"name", "a-parameter-server-12"}}));
  EXPECT_FALSE(about({{"kind", "Pod"}, {"name", "ab-worker-0"}}));
  EXPECT_FALSE(about({{"kind", "Pod"}, {"name", "a-b-worker-0"}})) << "of the job a-b";
  EXPECT_FALSE(about({{"kind", "TrainingJob"}, {"name", "a"}, {"uid", "2"}}));
}

TEST(RecordTest, LogsFitAndTheNewestComeFirst) {
  std::vector<LogTail> logs;
  for (int i = 0; i < 100; ++i) {
    logs.push_back({absl::StrCat("p", i), false, std::string(200'000, 'x') + "\n"});
  }
  logs.push_back({"empty", false, ""});
  const std::vector<LogTail> fit = FitLogs(logs);
  std::size_t bytes = 0;
  for (const LogTail& log : fit) bytes += log.text.size();
  EXPECT_LE(bytes, kAllLogsBytes);
  EXPECT_GT(fit.size(), 15U);
  EXPECT_EQ(fit.back().pod, "p99");
}

TEST(RetentionTest, IsAsItsTableSays) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  const auto gone = [&](int hours, std::int64_t bytes) {
    return Forgettable{"", now - absl::Hours(hours), bytes};
  };
  const std::vector<Forgettable> oldest = {gone(30, 10), gone(20, 20), gone(10, 30)};
  const Retention all{.age = absl::Hours(100), .jobs = 100, .bytes = 1000};
  struct Case {
    Retention retention;
    Space space;
    std::size_t forgotten;
  };
  const Case cases[] = {{all, {3, 60}, 0},
                        {{.age = absl::Hours(20), .jobs = 100, .bytes = 1000}, {3, 60}, 1},
                        {{.age = absl::Hours(15), .jobs = 100, .bytes = 1000}, {3, 60}, 2},
                        {{.age = absl::Hours(100), .jobs = 3, .bytes = 1000}, {3, 60}, 0},
                        {{.age = absl::Hours(100), .jobs = 2, .bytes = 1000}, {3, 60}, 1},
                        {{.age = absl::Hours(100), .jobs = 2, .bytes = 1000}, {10, 60}, 3},
                        {{.age = absl::Hours(100), .jobs = 100, .bytes = 50}, {3, 60}, 1},
                        {{.age = absl::Hours(100), .jobs = 100, .bytes = 49}, {3, 60}, 2},
                        {{.age = absl::Hours(100), .jobs = 100, .bytes = 0}, {3, 60}, 3},
                        {{.age = absl::ZeroDuration(), .jobs = 0, .bytes = 0}, {0, 0}, 3}};
  for (const Case& c : cases) {
    EXPECT_EQ(ChooseForgotten(oldest, c.space, c.retention, now), c.forgotten)
        << c.retention.age << " " << c.retention.jobs << " " << c.retention.bytes;
  }
  EXPECT_EQ(ChooseForgotten({}, {9, 9}, {.jobs = 0}, now), 0U);
}

}  // namespace
}  // namespace starling::history
