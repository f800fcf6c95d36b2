// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <numeric>

#include "common/clock/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/observe/activity_ledger.h"
#include "trainer/observe/activity_metrics.h"
#include "trainer/observe/seconds_report.h"
#include "trainer/observe/stopwatch.h"
#include "trainer/observe/stragglers.h"

namespace starling::observe {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pair;

double SumOf(const Seconds& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0,
                         [](double sum, const auto& one) { return sum + one.second; });
}

class StopwatchTest : public ::testing::Test {
 protected:
  void Spend(Activity activity, double seconds) {
    stopwatch_.Enter(activity);
    clock_.Advance(absl::Seconds(seconds));
  }

  clock::FakeClock clock_;
  const absl::Time began_ = clock_.Now();
  Stopwatch stopwatch_{clock_, began_};
};

TEST_F(StopwatchTest, EverySecondHasOneActivityAndTheFirstOnesAreTheStart) {
  clock_.Advance(absl::Seconds(3));
  Spend(Activity::kCompute, 2);
  Spend(Activity::kExchange, 1);
  Spend(Activity::kCompute, 4);
  const Seconds seconds = stopwatch_.Read();
  EXPECT_EQ(seconds.size(), kActivityNames.size());
  EXPECT_EQ(seconds.at("starting"), 3);
  EXPECT_EQ(seconds.at("compute"), 6);
  EXPECT_EQ(seconds.at("exchange"), 1);
  EXPECT_EQ(SumOf(seconds), absl::ToDoubleSeconds(clock_.Now() - began_));
}

TEST_F(StopwatchTest, WorkThatWasDoneBeforeIsRepeatedAndRestIsNot) {
  stopwatch_.CountAs(Activity::kRepeated);
  Spend(Activity::kInput, 1);
  Spend(Activity::kCompute, 2);
  Spend(Activity::kOptimizer, 3);
  Spend(Activity::kCheckpoint, 4);
  stopwatch_.CountAs(std::nullopt);
  Spend(Activity::kCompute, 5);
  const Seconds seconds = stopwatch_.Read();
  EXPECT_EQ(seconds.at("repeated"), 6);
  EXPECT_EQ(seconds.at("checkpoint"), 4);
  EXPECT_EQ(seconds.at("compute"), 5);
}

TEST_F(StopwatchTest, WhatIsMovedIsAtMostWhatThereIs) {
  Spend(Activity::kExchange, 2);
  stopwatch_.Enter(Activity::kIdle);
  stopwatch_.Move(Activity::kExchange, Activity::kWaiting, absl::Seconds(0.5));
  EXPECT_EQ(stopwatch_.Read().at("waiting"), 0.5);
  stopwatch_.Move(Activity::kExchange, Activity::kWaiting, absl::Seconds(9));
  stopwatch_.Move(Activity::kExchange, Activity::kWaiting, -absl::Seconds(9));
  EXPECT_EQ(stopwatch_.Read().at("waiting"), 2);
  EXPECT_EQ(stopwatch_.Read().at("exchange"), 0);
}

TEST_F(StopwatchTest, CountersNeverFallThoughSecondsMove) {
  metrics::Registry registry;
  ActivityMetrics shown(registry, "starling_worker_activity_seconds_total");
  Spend(Activity::kExchange, 2);
  shown.Show(stopwatch_.Read());
  stopwatch_.Enter(Activity::kIdle);
  stopwatch_.Move(Activity::kExchange, Activity::kWaiting, absl::Seconds(1));
  shown.Show(stopwatch_.Read());
  EXPECT_THAT(registry.Serialize(), HasSubstr("{activity=\"exchange\"} 2\n"));
  Spend(Activity::kExchange, 3);
  shown.Show(stopwatch_.Read());
  EXPECT_THAT(registry.Serialize(), HasSubstr("{activity=\"exchange\"} 4\n"));
  EXPECT_THAT(registry.Serialize(), HasSubstr("{activity=\"waiting\"} 1\n"));
}

TEST_F(StopwatchTest, WhatIsCountedAsSomethingElseIsStillWhatTheThreadDoes) {
  using Kind = membership::Standing::Kind;
  stopwatch_.CountAs(Activity::kRecovery);
  stopwatch_.Enter({Activity::kExchange, Kind::kWorks, "serving"});
  clock_.Advance(absl::Milliseconds(200));
  EXPECT_EQ(stopwatch_.Look().kind, Kind::kWorks);
  EXPECT_EQ(stopwatch_.Look().where, "serving");
  EXPECT_EQ(stopwatch_.Look().since, absl::Milliseconds(200));
  EXPECT_EQ(stopwatch_.activity(), Activity::kRecovery);
  EXPECT_DOUBLE_EQ(stopwatch_.Read().at("recovery"), 0.2);

  stopwatch_.CountAs(Activity::kRepeated);
  stopwatch_.Enter(Activity::kExchange);
  EXPECT_EQ(stopwatch_.activity(), Activity::kRepeated);
  EXPECT_EQ(stopwatch_.Look().kind, Kind::kWaits) << "work that is repeated waits for others too";
}

TEST_F(StopwatchTest, TellsWorkFromWaitsAndFromWhatIsAnnounced) {
  using Kind = membership::Standing::Kind;
  const std::map<Activity, Kind> kinds = {
      {Activity::kIdle, Kind::kWaits},           {Activity::kInput, Kind::kWorks},
      {Activity::kCompute, Kind::kWorks},        {Activity::kExchange, Kind::kWaits},
      {Activity::kOptimizer, Kind::kWorks},      {Activity::kJoining, Kind::kAnnounced},
      {Activity::kCheckpoint, Kind::kAnnounced}, {Activity::kRecovery, Kind::kAnnounced}};
  for (const auto& [activity, kind] : kinds) {
    stopwatch_.Enter(activity);
    EXPECT_EQ(stopwatch_.Look().kind, kind) << static_cast<int>(activity);
    EXPECT_EQ(stopwatch_.Look().where, kActivityNames[static_cast<size_t>(activity)]);
  }
  stopwatch_.Enter(Activity::kCompute);
  {
    const auto announced = stopwatch_.Announce("validation");
    stopwatch_.Enter(Activity::kInput);
    EXPECT_EQ(stopwatch_.Look().kind, Kind::kAnnounced);
    EXPECT_EQ(stopwatch_.Look().where, "validation");
    stopwatch_.Enter(Activity::kExchange);
    EXPECT_EQ(stopwatch_.Look().kind, Kind::kWaits) << "it needs what others are to give";
    stopwatch_.Enter(Activity::kInput);
  }
  EXPECT_EQ(stopwatch_.Look().where, "input");
  clock_.Advance(absl::Milliseconds(200));
  EXPECT_EQ(stopwatch_.Look().since, absl::Milliseconds(200));
}

TEST_F(StopwatchTest, AViewBeginsWithItsThreadAndWithoutStretches) {
  stopwatch_.Enter(Activity::kCompute);
  stopwatch_.Enter(Activity::kIdle);
  EXPECT_EQ(stopwatch_.Look().stretches, 1);
  stopwatch_.BeginView();
  EXPECT_EQ(stopwatch_.Look().stretches, 0);
  EXPECT_EQ(stopwatch_.Look().thread, gettid());
}

TEST_F(StopwatchTest, WhatWasDoneBeforeGoesOnAtTheEndOfABlock) {
  stopwatch_.Enter(Activity::kIdle);
  {
    const While outer(stopwatch_, DoingOf(Activity::kCompute));
    const While inner(stopwatch_, DoingOf(Activity::kOptimizer));
    clock_.Advance(absl::Seconds(1));
  }
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(stopwatch_.Read().at("optimizer"), 1);
  EXPECT_EQ(stopwatch_.Read().at("idle"), 2);
}

TEST_F(StopwatchTest, WhatIsRecordedAddsUpToTheSeconds) {
  timeline::Recorder recorder(clock_);
  Stopwatch watch(clock_, absl::InfiniteFuture(), &recorder);
  v1alpha1::TraceQuery query;
  query.set_request("r");
  watch.Enter(Activity::kIdle);
  (void)recorder.Answer(query);
  for (const Activity activity : {Activity::kInput, Activity::kCompute, Activity::kExchange,
                                  Activity::kExchange, Activity::kOptimizer, Activity::kIdle}) {
    watch.Enter(activity);
    clock_.Advance(absl::Milliseconds(10 + static_cast<int>(activity)));
  }
  watch.Enter(Activity::kIdle);
  Seconds told;
  std::int64_t until = 0;
  const v1alpha1::TraceAnswer answer = recorder.Answer(query);
  for (const v1alpha1::TraceEvent& event : answer.events()) {
    EXPECT_GE(event.begin_nanos(), until) << "no two at once";
    until = event.end_nanos();
    told[event.name()] +=
        absl::ToDoubleSeconds(absl::Nanoseconds(event.end_nanos() - event.begin_nanos()));
  }
  const Seconds counted = watch.Read();
  EXPECT_EQ(told.size(), 5U);
  for (const auto& [activity, seconds] : told) EXPECT_DOUBLE_EQ(seconds, counted.at(activity));
}

class LedgerTest : public StopwatchTest {
 protected:
  static Seconds ToSeconds(const google::protobuf::Map<std::string, double>& map) {
    return {map.begin(), map.end()};
  }
  void Report(ActivityLedger& ledger, const membership::MemberId& process, SecondsReport& from,
              std::uint64_t incarnation) {
    v1alpha1::TrainingReport report;
    from.Fill(incarnation, report);
    ledger.OnReport(process, "", ToSeconds(report.goodput()), ToSeconds(report.goodput_before()));
  }

  const membership::MemberId first_{"a", 0};
  const membership::MemberId second_{"a", 1};
};

TEST_F(LedgerTest, WhoeverEndsTakesNothingAway) {
  ActivityLedger ledger;
  ledger.OnReport(first_, "", {{"compute", 5}, {"idle", 1}}, {});
  ledger.OnReport(first_, "", {{"compute", 7}, {"idle", 1}}, {});
  ledger.OnReport(second_, "", {{"compute", 2}, {"idle", 3}}, {});
  EXPECT_EQ(ledger.sum(), (Seconds{{"compute", 9}, {"idle", 4}}));
}

TEST_F(LedgerTest, SecondsThatMoveBetweenReportsMoveInTheSum) {
  ActivityLedger ledger;
  ledger.OnReport(first_, "", {{"exchange", 5}, {"waiting", 0}}, {});
  ledger.OnReport(first_, "", {{"exchange", 3}, {"waiting", 3}}, {});
  EXPECT_EQ(ledger.sum(), (Seconds{{"exchange", 3}, {"waiting", 3}}));
}

TEST_F(LedgerTest, ASuccessorGoesOnFromWhatWasCountedAndCountsNothingTwice) {
  SecondsReport report(stopwatch_);
  ActivityLedger before;
  clock_.Advance(absl::Seconds(1));
  Report(before, first_, report, 0);  // to nobody yet: the same coordinator hears it all again
  ActivityLedger ledger;
  clock_.Advance(absl::Seconds(2));
  Report(ledger, first_, report, 1);
  EXPECT_EQ(ledger.sum().at("starting"), 3);

  ActivityLedger successor;
  successor.Start(ledger.sum());
  Spend(Activity::kCompute, 4);
  Report(successor, first_, report, 2);
  EXPECT_EQ(successor.sum().at("starting"), 3);
  EXPECT_EQ(successor.sum().at("compute"), 4);
  Spend(Activity::kCompute, 1);
  Report(successor, first_, report, 2);
  EXPECT_EQ(SumOf(successor.sum()), absl::ToDoubleSeconds(clock_.Now() - began_));
}

TEST_F(LedgerTest, WhatAProcessDidAfterItsLastReportIsLostUnlessItSpeaksAgain) {
  ActivityLedger ledger;
  ledger.OnBroken(first_, "", absl::Seconds(9));  // it has never reported
  EXPECT_TRUE(ledger.sum().empty());
  ledger.OnReport(first_, "", {{"compute", 5}, {"recovery", 1}}, {});
  ledger.OnBroken(first_, "", absl::Seconds(2));
  EXPECT_EQ(ledger.sum(), (Seconds{{"compute", 5}, {"recovery", 3}}));
  ledger.OnReport(first_, "", {{"compute", 7}, {"recovery", 1}}, {});
  EXPECT_EQ(ledger.sum(), (Seconds{{"compute", 7}, {"recovery", 1}}));
  ledger.OnBroken(first_, "", absl::Seconds(1));
  ledger.OnReport(second_, "", {{"compute", 1}}, {});
  EXPECT_EQ(ledger.sum(), (Seconds{{"compute", 8}, {"recovery", 2}}));
}

TEST_F(LedgerTest, AbsenceIsQueueingUnlessAProcessTurnsOutToHaveLivedMeanwhile) {
  ActivityLedger ledger;
  ledger.OnAbsence("", 2, absl::Seconds(5));
  EXPECT_EQ(ledger.sum().at(kQueueing), 10);
  ledger.OnReport(first_, "", {{"starting", 3}}, {});
  EXPECT_EQ(ledger.sum(), (Seconds{{kQueueing, 7}, {"starting", 3}}));
  ledger.OnReport(second_, "", {{"starting", 100}}, {});
  EXPECT_EQ(ledger.sum(), (Seconds{{kQueueing, 0}, {"starting", 103}}));
}

TEST_F(LedgerTest, ServersHaveLinesOfTheirOwn) {
  ActivityLedger ledger;
  ledger.OnReport(first_, "", {{"idle", 3}}, {});
  ledger.OnReport({"s", 0}, kOfServers, {{"idle", 4}}, {});
  EXPECT_THAT(ledger.sum(),
              ::testing::UnorderedElementsAre(Pair("idle", DoubleNear(3, 1e-9)),
                                              Pair("server/idle", DoubleNear(4, 1e-9))));
}

class StragglersTest : public ::testing::Test {
 protected:
  // For so long each worker works for its share of the time.
  void Run(const std::map<std::string, double>& shares, int seconds) {
    for (int i = 0; i < 10 * seconds; ++i) {
      now_ += absl::Milliseconds(100);
      for (const auto& [pod, share] : shares) {
        busy_[pod] += 0.1 * share;
        found_.OnReport({pod, 0}, {{"compute", busy_[pod]}, {"waiting", 99}}, now_);
      }
    }
  }
  std::vector<std::string> Found() const {
    std::vector<std::string> pods;
    for (const Straggler& one : found_.Find(now_)) pods.push_back(one.process.pod_uid);
    return pods;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::map<std::string, double> busy_;
  Stragglers found_;
};

TEST_F(StragglersTest, WhoWorksLongerThanTheFastestQuarterIsFoundTheSlowestFirst) {
  Run({{"a", 0.3}, {"b", 0.3}, {"c", 0.6}, {"d", 0.32}, {"e", 0.9}}, 12);
  EXPECT_THAT(Found(), ::testing::ElementsAre("e", "c"));
  EXPECT_NEAR(found_.Find(now_)[0].ratio, 3, 0.01);
  EXPECT_NEAR(found_.Find(now_)[1].ratio, 2, 0.01);
}

TEST_F(StragglersTest, OfTwoTheSlowerIsFound) {
  Run({{"a", 0.3}, {"b", 0.9}}, 12);
  EXPECT_THAT(Found(), ::testing::ElementsAre("b"));
}

TEST_F(StragglersTest, NobodyIsFoundWhereAllAreAlikeOrAloneOrHardlyWork) {
  Run({{"a", 0.3}, {"b", 0.4}, {"c", 0.35}}, 12);
  EXPECT_THAT(Found(), ::testing::IsEmpty());
  found_ = {};
  Run({{"a", 0.9}}, 12);
  EXPECT_THAT(Found(), ::testing::IsEmpty());
  found_ = {};
  Run({{"a", 0.01}, {"b", 0.04}}, 12);
  EXPECT_THAT(Found(), ::testing::IsEmpty());
}

TEST_F(StragglersTest, ItTakesAWindowAndIsOverWhenItIs) {
  Run({{"a", 0.3}, {"b", 0.9}}, 9);
  EXPECT_THAT(Found(), ::testing::IsEmpty());
  Run({{"a", 0.3}, {"b", 0.9}}, 3);
  EXPECT_THAT(Found(), ::testing::ElementsAre("b"));
  Run({{"a", 0.3}, {"b", 0.3}}, 12);
  EXPECT_THAT(Found(), ::testing::IsEmpty());
}

TEST_F(StragglersTest, WhoIsGoneIsNotFoundAndNoMeasure) {
  Run({{"a", 0.3}, {"b", 0.9}}, 12);
  Run({{"a", 0.3}}, 3);
  EXPECT_THAT(Found(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace starling::observe
