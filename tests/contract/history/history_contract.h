// SPDX-License-Identifier: Apache-2.0
// What every History must do, as a suite that each implementation runs.
//
// To run it for another: INSTANTIATE_TEST_SUITE_P(Mine, HistoryContract, Values(HistoryFactory{}),
// NameOfHistory). A store has two doors, as two processes that record the same jobs have.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "controller/history/history.h"
#include "controller/kube/objects.h"
#include "controller/kube/selector.h"

namespace starling::history {

using kube::Json;

class HistoryStore {
 public:
  virtual ~HistoryStore() = default;
  virtual std::unique_ptr<History> Open() = 0;
};

struct HistoryFactory {
  std::string name;
  std::function<std::unique_ptr<HistoryStore>()> make;  // null: skipped
};

inline std::string NameOfHistory(const testing::TestParamInfo<HistoryFactory>& info) {
  return info.param.name;
}

inline Json SummaryForTests(const Json& job) {
  return {{"name", kube::NameOf(job)}, {"state", kube::StringAt(job, "/status/state")}};
}

// UIDs as API servers make them: of one length, in small letters.
inline std::string Uid(int number) {
  return absl::StrFormat("00000000-0000-4000-8000-%012d", number);
}

struct TestJob {
  int number = 1;
  int version = 1;
  std::string name = "digits";
  std::string ns = "default";
  std::string ns_uid = {};
  int created = 0;  // seconds
  std::string state = "Running";
  Json labels = Json::object();
  Json status = Json::object();
};

inline JobUpdate UpdateOf(const TestJob& job) {
  Json object = {{"apiVersion", "starling.dev/v1alpha1"},
                 {"kind", "TrainingJob"},
                 {"metadata",
                  {{"name", job.name},
                   {"namespace", job.ns},
                   {"uid", Uid(job.number)},
                   {"resourceVersion", absl::StrCat(job.version)},
                   {"creationTimestamp", absl::StrFormat("2026-01-01T00:%02d:%02dZ",
                                                         job.created / 60, job.created % 60)},
                   {"labels", job.labels},
                   {"managedFields", {{{"manager", "x"}}}}}},
                 {"spec", {{"seed", job.version}, {"rate", 0.1}}},
                 {"status", job.status}};
  object["status"]["state"] = job.state;
  JobUpdate update;
  update.record = MakeRecord(object, job.ns_uid, SummaryForTests);
  return update;
}

inline JobUpdate Gone(JobUpdate update, absl::Time when = absl::FromUnixSeconds(1'800'000'000)) {
  update.gone = when;
  return update;
}

class HistoryContract : public testing::TestWithParam<HistoryFactory> {
 protected:
  void SetUp() override {
    store_ = GetParam().make();
    if (store_ == nullptr) GTEST_SKIP() << "no such store here";
    history_ = store_->Open();
    other_ = store_->Open();
  }

  void Record(const JobUpdate& update) {
    const absl::Status status = history_->Record({update}).status();
    ASSERT_TRUE(status.ok()) << status;
  }
  PastJob Find(const std::string& name, const std::string& uid = "",
               const std::string& ns = "default", const std::string& ns_uid = "") {
    auto found = other_->Find({ns, ns_uid, name, uid});
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *std::move(found) : PastJob();
  }
  std::int64_t VersionOf(const std::string& name) {
    return kube::IntAt(Find(name).object, "/spec/seed");
  }
  std::vector<std::string> List(const ListQuery& query) {
    const auto jobs = other_->List(query);
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    std::vector<std::string> names;
    if (jobs.ok()) {
      for (const ListedJob& job : *jobs) names.push_back(job.summary["name"]);
    }
    return names;
  }
  Points CurveOf(int number, const std::string& metric = "loss") {
    auto curves = other_->Curves(Uid(number), metric);
    EXPECT_TRUE(curves.ok()) << curves.status();
    return curves.ok() ? (*curves)[metric] : Points();
  }

  std::unique_ptr<HistoryStore> store_;
  std::unique_ptr<History> history_;  // written to
  std::unique_ptr<History> other_;    // read from
};

TEST_P(HistoryContract, AJobIsFoundWholeByItsNameAndByItsUid) {
  Record(UpdateOf({.version = 3, .labels = {{"team", "vision"}}}));

  const PastJob job = Find("digits");
  EXPECT_EQ(kube::UidOf(job.object), Uid(1));
  EXPECT_EQ(kube::At(job.object, "/spec/rate"), 0.1);
  EXPECT_EQ(kube::LabelOf(job.object, "team"), "vision");
  EXPECT_TRUE(kube::At(job.object, "/metadata/managedFields").is_null());
  EXPECT_FALSE(job.gone.has_value());
  EXPECT_EQ(kube::UidOf(Find("digits", Uid(1)).object), Uid(1));
  EXPECT_TRUE(absl::IsNotFound(other_->Find({"default", "", "digits", Uid(2)}).status()));
  EXPECT_EQ(*other_->FindUid("default", "digits", Uid(1).substr(0, 8)), Uid(1));
  EXPECT_EQ(*other_->FindUid("default", "other", Uid(1).substr(0, 8)), "");
  EXPECT_EQ(*other_->FindUid("default", "digits", "11111111"), "");
  EXPECT_TRUE(absl::IsNotFound(other_->Find({"default", "", "other", ""}).status()));
}

TEST_P(HistoryContract, NewsThatIsToldAgainOrLateChangesNothing) {
  JobUpdate five = UpdateOf({.version = 5});
  five.points["loss"] = {{10, 1, 0.5}};
  Record(five);
  JobUpdate late = UpdateOf({.version = 4});
  late.points["loss"] = {{8, 0.5, 0.9}};
  EXPECT_THAT(*history_->Record({late}), testing::IsEmpty());
  EXPECT_THAT(*history_->Record({five}), testing::IsEmpty());
  EXPECT_THAT(*history_->Record({UpdateOf({.number = 2, .version = 4, .name = "other"}), late}),
              testing::ElementsAre(Uid(2)));

  EXPECT_EQ(VersionOf("digits"), 5);
  EXPECT_EQ(CurveOf(1), (Points{{10, 1, 0.5}}));
  EXPECT_EQ(*other_->NewestVersion(), 5);
}

TEST_P(HistoryContract, SeveralMayRecordTheSameJobsAtTheSameTime) {
  const auto record = [](History& history, int first) {
    for (int version = first; version <= 40; version += 2) {
      std::vector<JobUpdate> updates;
      for (int number = 1; number <= 5; ++number) {
        JobUpdate update =
            UpdateOf({.number = number, .version = version, .name = absl::StrCat("job-", number)});
        update.points["loss"] = {{version, version * 1.0, 1.0 / version}};
        updates.push_back(std::move(update));
      }
      if (first == 2) std::reverse(updates.begin(), updates.end());
      const absl::Status status = history.Record(updates).status();
      EXPECT_TRUE(status.ok()) << status;
    }
  };
  std::thread one([&] { record(*history_, 1); });
  std::thread two([&] { record(*other_, 2); });
  one.join();
  two.join();

  for (int number = 1; number <= 5; ++number) {
    EXPECT_EQ(VersionOf(absl::StrCat("job-", number)), 40);
    const Points curve = CurveOf(number);
    ASSERT_FALSE(curve.empty());
    EXPECT_EQ(curve.back().step, 40);
    for (std::size_t i = 1; i < curve.size(); ++i) EXPECT_GT(curve[i].step, curve[i - 1].step);
  }
}

TEST_P(HistoryContract, AJobOfTheSameNameHasItsOwnHistory) {
  JobUpdate first = UpdateOf({.number = 1, .version = 3, .state = "Failed"});
  first.points["loss"] = {{1, 0, 9.0}};
  Record(Gone(first));
  JobUpdate second = UpdateOf({.number = 2, .version = 7});
  second.points["loss"] = {{1, 0, 2.0}};
  Record(second);

  EXPECT_EQ(kube::UidOf(Find("digits").object), Uid(2)) << "created in the same second";
  EXPECT_EQ(kube::StringAt(Find("digits", Uid(1)).object, "/status/state"), "Failed");
  EXPECT_EQ(CurveOf(1).at(0).value, 9.0);
  EXPECT_EQ(CurveOf(2).at(0).value, 2.0);
}

TEST_P(HistoryContract, ANamespaceThatIsMadeAnewInheritsNothing) {
  Record(Gone(UpdateOf({.number = 1, .ns = "team", .ns_uid = "first"})));

  EXPECT_TRUE(absl::IsNotFound(other_->Find({"team", "second", "digits", ""}).status()));
  EXPECT_TRUE(absl::IsNotFound(other_->Find({"team", "second", "digits", Uid(1)}).status()));
  EXPECT_EQ(Find("digits", "", "team", "first").ns_uid, "first");
  ListQuery query;
  query.visible = [](const std::string&, const std::string& uid) { return uid == "second"; };
  EXPECT_THAT(List(query), testing::IsEmpty());
  query.visible = [](const std::string& ns, const std::string& uid) {
    return ns == "team" && uid == "first";
  };
  EXPECT_THAT(List(query), testing::ElementsAre("digits"));
  // Later versions do not move it.
  Record(Gone(UpdateOf({.number = 1, .version = 9, .ns = "team", .ns_uid = "second"})));
  EXPECT_TRUE(absl::IsNotFound(other_->Find({"team", "second", "digits", ""}).status()));
}

TEST_P(HistoryContract, WhoIsGoneStaysGoneAndWhoComesBackIsThere) {
  const absl::Time first = absl::FromUnixSeconds(1'800'000'000);
  Record(Gone(UpdateOf({.version = 3}), first));
  Record(Gone(UpdateOf({.version = 3}), first + absl::Hours(1)));
  EXPECT_EQ(Find("digits").gone, first) << "who notices first says when";
  EXPECT_THAT(List({}), testing::ElementsAre("digits"));
  EXPECT_THAT(*other_->Present(), testing::IsEmpty());

  Record(UpdateOf({.version = 2}));
  EXPECT_TRUE(Find("digits").gone.has_value()) << "older news";
  Record(UpdateOf({.version = 4}));  // it was missing in a list that lagged
  EXPECT_FALSE(Find("digits").gone.has_value());
  EXPECT_THAT(List({}), testing::IsEmpty());
  EXPECT_THAT(List({.present_too = true}), testing::ElementsAre("digits"));
  ASSERT_EQ(other_->Present()->size(), 1U);
  EXPECT_EQ(other_->Present()->at(0).name, "digits");
}

TEST_P(HistoryContract, ListsArePagedNewestFirst) {
  for (int i = 1; i <= 7; ++i) {
    Record(Gone(UpdateOf({.number = i, .name = absl::StrCat("j", i), .created = i / 2})));
  }
  std::vector<std::string> seen;
  ListQuery query{.limit = 3};
  while (true) {
    const auto page = *other_->List(query);
    if (page.empty()) break;
    for (const ListedJob& job : page) seen.push_back(job.summary["name"]);
    query.after = {page.back().created, page.back().uid};
    // What comes meanwhile, above or below, shifts no page.
    Record(Gone(UpdateOf(
        {.number = 100 + static_cast<int>(seen.size()), .name = "newer", .created = 900})));
  }
  EXPECT_THAT(seen, testing::ElementsAre("j6", "j7", "j4", "j5", "j2", "j3", "j1"));
}

TEST_P(HistoryContract, ListsAreOfANamespaceAndWhatASelectorMatches) {
  Record(Gone(UpdateOf({.number = 1, .name = "a", .labels = {{"team", "x"}, {"tier", "1"}}})));
  Record(Gone(UpdateOf({.number = 2, .name = "b", .labels = {{"team", "x"}}})));
  Record(Gone(UpdateOf({.number = 3, .name = "c", .ns = "other", .labels = {{"team", "x"}}})));
  Record(Gone(UpdateOf({.number = 4, .name = "d", .labels = {{"team", "y"}}})));
  Record(Gone(UpdateOf({.number = 4, .version = 2, .name = "d", .labels = {{"team", "z"}}})));

  EXPECT_THAT(List({.ns = "other"}), testing::ElementsAre("c"));
  const auto selector =
      *kube::Selector::Parse(kube::kTrainingJob, {"team=x,!tier", "metadata.name!=e"});
  ListQuery query;
  query.matches = [&](const Json& parts) { return selector.Matches(parts); };
  EXPECT_THAT(List(query), testing::UnorderedElementsAre("b", "c"));
  query.label = {"team", "x"};
  EXPECT_THAT(List(query), testing::UnorderedElementsAre("b", "c"));
  query.ns = "default";
  query.limit = 1;
  EXPECT_THAT(List(query), testing::ElementsAre("b"));
  EXPECT_THAT(List({.label = {"team", "y"}}), testing::IsEmpty());
  EXPECT_THAT(List({.label = {"team", "z"}}), testing::ElementsAre("d"));
}

TEST_P(HistoryContract, ManyPagesAreSearchedForTheFewThatMatch) {
  std::vector<JobUpdate> updates;
  for (int i = 0; i < 700; ++i) {
    updates.push_back(Gone(UpdateOf({.number = i, .name = absl::StrCat("j", i), .created = i})));
  }
  ASSERT_TRUE(history_->Record(updates).ok());
  ListQuery query;
  query.matches = [](const Json& parts) {
    const std::string name = kube::NameOf(parts);
    return name == "j1" || name == "j400";
  };
  EXPECT_THAT(List(query), testing::ElementsAre("j400", "j1"));
}

TEST_P(HistoryContract, CurvesAreBoundedAndKeepTheirEndsAndTheirPeaks) {
  int version = 0;
  for (int step = 1; step <= 6000;) {
    JobUpdate update = UpdateOf({.version = ++version});
    for (int i = 0; i < 60; ++i, ++step) {
      update.points["loss"].push_back({step, step * 0.5, step == 1234 ? 99.0 : 1.0 / step});
    }
    Record(update);
  }
  const Points curve = CurveOf(1);
  EXPECT_LE(curve.size(), kMostPoints);
  EXPECT_GE(curve.size(), kMostPoints / 3);
  EXPECT_EQ(curve.front(), (Point{1, 0.5, 1.0}));
  EXPECT_EQ(curve.back(), (Point{6000, 3000, 1.0 / 6000}));
  EXPECT_THAT(curve, testing::Contains(Point{1234, 617, 99.0}));
  for (std::size_t i = 1; i < curve.size(); ++i) EXPECT_GT(curve[i].step, curve[i - 1].step);
}

TEST_P(HistoryContract, TrainingThatWasSetBackReplacesWhatItWas) {
  int version = 0;
  const auto tell = [&](std::int64_t first, std::int64_t last, double value) {
    JobUpdate update = UpdateOf({.version = ++version});
    for (std::int64_t step = first; step <= last; ++step) {
      update.points["loss"].push_back({step, 0, value});
    }
    update.points["validation/accuracy"] = {{last, 0, value}};
    Record(update);
  };
  tell(1, 200, 1);
  tell(100, 110, 2);
  tell(110, 111, 3);

  const Points curve = CurveOf(1);
  ASSERT_EQ(curve.size(), 111U);
  EXPECT_EQ(curve[98], (Point{99, 0, 1}));
  EXPECT_EQ(curve[99], (Point{100, 0, 2}));
  EXPECT_EQ(curve[109].value, 2) << "the same step again is no news";
  EXPECT_EQ(curve[110].value, 3);
  JobUpdate late = UpdateOf({.version = ++version});
  late.points["loss"] = {{112, 9, 4}, {113, 8, 4}};
  Record(late);
  EXPECT_EQ(CurveOf(1).back(), (Point{113, 9, 4})) << "time does not go back";
  EXPECT_EQ(CurveOf(1, "validation/accuracy").size(), 2U);
  EXPECT_EQ(other_->Curves(Uid(1), "")->size(), 2U);
}

TEST_P(HistoryContract, MetricsAreAsManyAsAJobMayHave) {
  JobUpdate update = UpdateOf({});
  for (std::size_t i = 0; i < kMostMetrics + 5; ++i) {
    update.points[absl::StrCat("m", i)] = {{1, 0, 1}};
  }
  Record(update);
  EXPECT_EQ(other_->Curves(Uid(1), "")->size(), kMostMetrics);
}

TEST_P(HistoryContract, IncidentsAndEventsGatherBeyondWhatTheObjectHolds) {
  const auto incident = [](int i) {
    return Json{{"time", absl::StrFormat("2026-01-01T00:00:%02dZ", i)}, {"reason", "WorkerLost"}};
  };
  JobUpdate first = UpdateOf({.version = 1, .status = {{"incidents", {incident(1), incident(2)}}}});
  first.events = {{{"metadata", {{"uid", "e1"}, {"creationTimestamp", "2026-01-01T00:00:02Z"}}},
                   {"reason", "Created"}}};
  Record(first);
  Json later = incident(2);
  later["recoverySeconds"] = 0.5;
  JobUpdate second = UpdateOf({.version = 2, .status = {{"incidents", {later, incident(3)}}}});
  second.events = {{{"metadata", {{"uid", "e0"}, {"creationTimestamp", "2026-01-01T00:00:01Z"}}},
                    {"reason", "Begun"}},
                   first.events[0]};
  Record(second);

  const PastJob job = Find("digits");
  ASSERT_EQ(job.incidents.size(), 3U);
  EXPECT_EQ(kube::At(job.incidents[1], "/recoverySeconds"), 0.5);
  ASSERT_EQ(job.events.size(), 2U);
  EXPECT_EQ(kube::StringAt(job.events[0], "/reason"), "Begun");
}

TEST_P(HistoryContract, LogsKeepTheirLastWholeLines) {
  JobUpdate update = UpdateOf({});
  std::string much;
  while (much.size() < 2 * kLogTailBytes) much += "a line of some length\n";
  update.logs = {{"w-0", true, "old\n"}, {"w-0", false, much + "the last\n"}};
  Record(update);
  Record(UpdateOf({.version = 2}));  // says nothing of logs

  const auto logs = *other_->Logs(Uid(1));
  ASSERT_EQ(logs.size(), 2U);
  EXPECT_EQ(logs[0], (LogTail{"w-0", true, "old\n"}));
  EXPECT_LE(logs[1].text.size(), kLogTailBytes);
  EXPECT_GT(logs[1].text.size(), kLogTailBytes - 100);
  EXPECT_TRUE(logs[1].text.starts_with("a line"));
  EXPECT_TRUE(logs[1].text.ends_with("\nthe last\n"));

  JobUpdate again;  // of a job whose object is gone
  again.record.uid = Uid(1);
  again.logs = {{"w-0", false, "anew\n"}};
  again.logs_taken = true;
  Record(again);
  EXPECT_EQ(other_->Logs(Uid(1))->size(), 1U);
  EXPECT_EQ(VersionOf("digits"), 2);
  EXPECT_TRUE(other_->Present()->at(0).logs_taken);
}

TEST_P(HistoryContract, TextThatIsNoTextDoesNotStopIt) {
  const std::string strange("nul \0 and \xff\xfe and \xed\xa0\x80", 18);
  JobUpdate update = UpdateOf({.labels = {{"a", strange}}, .status = {{strange, strange}}});
  update.logs = {{"w", false, strange + "\n"}};
  update.events = {{{"metadata", {{"uid", "e"}}}, {"note", strange}}};
  update.points["loss'; DROP TABLE history_jobs; --"] = {{1, 0, 1}};
  Record(update);

  EXPECT_THAT(kube::LabelOf(Find("digits").object, "a"), testing::HasSubstr("nul \xEF\xBF\xBD"));
  EXPECT_EQ(other_->Logs(Uid(1))->size(), 1U);
  EXPECT_EQ(other_->Curves(Uid(1), "")->size(), 1U);
  EXPECT_TRUE(absl::IsNotFound(other_->Find({"default", "", "' OR '1'='1", ""}).status()));
}

TEST_P(HistoryContract, TheOldestAreForgottenByAgeAndBySize) {
  const absl::Time start = absl::FromUnixSeconds(1'800'000'000);
  for (int i = 1; i <= 5; ++i) {
    JobUpdate update =
        UpdateOf({.number = i, .name = absl::StrCat("j", i), .labels = {{"team", "x"}}});
    update.points["loss"] = {{1, 0, 1}};
    update.logs = {{"w", false, std::string(1000, 'x') + "\n"}};
    Record(Gone(update, start + absl::Hours(i)));
  }
  Record(UpdateOf({.number = 9, .name = "alive"}));
  const absl::Time now = start + absl::Hours(6);

  const auto all = *history_->Trim({.age = absl::Hours(100)}, now);
  EXPECT_EQ(all.jobs, 6);
  const auto young = *history_->Trim({.age = absl::Minutes(270)}, now);
  EXPECT_EQ(young.jobs, 5) << "the first is 5 h old";
  EXPECT_THAT(List({}), testing::UnorderedElementsAre("j2", "j3", "j4", "j5"));
  EXPECT_TRUE(absl::IsNotFound(other_->Find({"default", "", "j1", ""}).status()));
  EXPECT_TRUE(other_->Curves(Uid(1), "")->empty());
  EXPECT_TRUE(other_->Logs(Uid(1))->empty());

  const auto few = *history_->Trim({.jobs = 3}, now);
  EXPECT_EQ(few.jobs, 3);
  EXPECT_THAT(List({}), testing::UnorderedElementsAre("j4", "j5"));
  const auto small = *history_->Trim({.bytes = few.bytes - 1}, now);
  EXPECT_EQ(small.jobs, 2);
  EXPECT_GT(small.bytes, 0);
  EXPECT_LT(small.bytes, few.bytes - 1000);
  const auto none = *history_->Trim({.bytes = 0}, now);
  EXPECT_EQ(none.jobs, 1) << "what is there is not forgotten";
}

TEST_P(HistoryContract, WhatIsRecordedTakesAsManyBytesAsIsSaid) {
  const auto bytes = [&] { return history_->Trim({}, absl::FromUnixSeconds(0))->bytes; };
  JobUpdate update = UpdateOf({.version = 1});
  Record(update);
  const std::int64_t bare = bytes();
  EXPECT_GT(bare, 300);
  Record(UpdateOf({.version = 2}));
  EXPECT_EQ(bytes(), bare) << "the newer object is in the place of the older";
  update = UpdateOf({.version = 3});
  for (int step = 1; step < 5000; ++step) update.points["loss"].push_back({step, 0, 1});
  update.logs = {{"w", false, std::string(999, 'x') + "\n"}};
  Record(update);
  EXPECT_GT(bytes(), bare + 1000 + 5 * 1000);
  JobUpdate back = UpdateOf({.version = 4});
  back.points["loss"] = {{1, 0, 1}};
  back.logs = {{"w", false, "x\n"}};
  Record(back);
  EXPECT_NEAR(static_cast<double>(bytes()), static_cast<double>(bare), 50);
}

TEST_P(HistoryContract, EverythingIsThereAfterItWasClosed) {
  JobUpdate update = UpdateOf({.version = 3});
  update.points["loss"] = {{1, 0, 1}};
  Record(Gone(update));
  history_.reset();
  other_.reset();
  other_ = store_->Open();
  EXPECT_EQ(VersionOf("digits"), 3);
  EXPECT_EQ(CurveOf(1).size(), 1U);
}

}  // namespace starling::history
