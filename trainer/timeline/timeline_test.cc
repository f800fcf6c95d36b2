// SPDX-License-Identifier: Apache-2.0
// From what members record to the file that a viewer opens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/gzip/gzip.h"
#include "common/json/json.h"
#include "trainer/timeline/chrome_trace.h"
#include "trainer/timeline/collector.h"
#include "trainer/timeline/recorder.h"

namespace starling::timeline {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using v1alpha1::TraceAnswer;
using v1alpha1::TraceEvent;
using v1alpha1::TraceQuery;

v1alpha1::MemberId Id(const std::string& uid, std::int64_t start = 0) {
  v1alpha1::MemberId id;
  id.set_pod_uid(uid);
  id.set_start(start);
  return id;
}

TraceQuery Ask(const std::string& request, std::uint64_t after = 0) {
  TraceQuery query;
  query.set_request(request);
  query.set_after(after);
  return query;
}

class RecorderTest : public ::testing::Test {
 protected:
  void Do(std::string_view name, absl::Duration how_long = absl::Milliseconds(1)) {
    const absl::Time begin = clock_.Now();
    clock_.Advance(how_long);
    recorder_.Add({.name = name, .begin = begin, .end = clock_.Now()});
  }

  clock::FakeClock clock_;
  Recorder recorder_{clock_, Id("a", 2)};
};

TEST_F(RecorderTest, NothingIsKeptUntilSomebodyAsks) {
  EXPECT_FALSE(recorder_.on());
  Do("compute");
  const TraceAnswer first = recorder_.Answer(Ask("r"));
  EXPECT_EQ(first.events_size(), 0);
  EXPECT_EQ(first.id().start(), 2);
  EXPECT_TRUE(recorder_.on());
  recorder_.BeginStep(7, 3);
  Do("compute");
  const TraceAnswer second = recorder_.Answer(Ask("r"));
  ASSERT_EQ(second.events_size(), 1);
  EXPECT_EQ(second.events(0).name(), "compute");
  EXPECT_EQ(second.events(0).step(), 7);
  EXPECT_EQ(second.events(0).epoch(), 3);
  EXPECT_EQ(second.events(0).end_nanos() - second.events(0).begin_nanos(), 1'000'000);
}

TEST_F(RecorderTest, AQuestionThatIsRepeatedGivesTheSameAndWhatHasArrivedIsLetGo) {
  (void)recorder_.Answer(Ask("r"));
  for (int i = 0; i < 5; ++i) Do("compute");
  EXPECT_EQ(recorder_.Answer(Ask("r")).events_size(), 5);
  EXPECT_EQ(recorder_.Answer(Ask("r")).events_size(), 5);
  const TraceAnswer rest = recorder_.Answer(Ask("r", 3));
  EXPECT_EQ(rest.first(), 3U);
  EXPECT_EQ(rest.events_size(), 2);
  // One who knows of more than there was speaks of another process.
  EXPECT_EQ(recorder_.Answer(Ask("r", 99)).events_size(), 2);
}

TEST_F(RecorderTest, WhatThereIsNoRoomForIsCountedAndAnswersAreBounded) {
  (void)recorder_.Answer(Ask("r"));
  for (std::size_t i = 0; i < Recorder::kMostEvents + 10; ++i) Do("compute", absl::Nanoseconds(1));
  const TraceAnswer answer = recorder_.Answer(Ask("r"));
  EXPECT_EQ(answer.left_out(), 10U);
  EXPECT_EQ(answer.events_size(), static_cast<int>(Recorder::kMostInAnswer));
  EXPECT_LT(answer.ByteSizeLong(), 1U << 20);
}

TEST_F(RecorderTest, ItEndsWhenItIsOverOrForgottenAndAnotherRequestBeginsAnew) {
  (void)recorder_.Answer(Ask("r"));
  Do("compute");
  EXPECT_EQ(recorder_.Answer(Ask("s")).events_size(), 0) << "those were for another";
  TraceQuery over = Ask("r");
  over.set_over(true);
  (void)recorder_.Answer(over);
  EXPECT_TRUE(recorder_.on()) << "another's end is not this one's";
  over.set_request("s");
  (void)recorder_.Answer(over);
  EXPECT_FALSE(recorder_.on());

  (void)recorder_.Answer(Ask("t"));
  Do("compute", Recorder::kForgotten + absl::Milliseconds(1));
  EXPECT_FALSE(recorder_.on());
  EXPECT_EQ(recorder_.Answer(TraceQuery()).events_size(), 0);
  EXPECT_FALSE(recorder_.on()) << "a question for nothing begins nothing";
}

TEST_F(RecorderTest, AStretchThatBeganBeforeIsCutAndTextsAreKeptWithinABound) {
  const absl::Time before = clock_.Now();
  clock_.Advance(absl::Milliseconds(5));
  (void)recorder_.Answer(Ask("r"));
  clock_.Advance(absl::Milliseconds(1));
  recorder_.Add({.name = "compute", .begin = before, .end = clock_.Now()});
  const TraceAnswer answer = recorder_.Answer(Ask("r"));
  EXPECT_EQ(answer.events(0).end_nanos() - answer.events(0).begin_nanos(), 1'000'000);
  std::string_view last;
  for (int i = 0; i < 1000; ++i) last = recorder_.Keep(absl::StrCat("text ", i));
  EXPECT_EQ(last, "other");
  EXPECT_EQ(recorder_.Keep("text 0"), "text 0");
}

// A recording of members that answer as they are told.
class CollectorTest : public ::testing::Test {
 protected:
  CollectorTest() : collector_(Options(), now_, absl::FromUnixSeconds(1'800'000'000)) { Members(); }

  static Collector::Options Options() { return {.job = "digits", .request = "r", .steps = 3}; }
  void Members(const std::map<std::string, Who>& members = {{"a", {"w-0", "n1"}},
                                                            {"b", {"w-1", "n2"}}}) {
    collector_.SetMembers(members);
  }
  // Whoever is due is asked, and answers with this.
  bool Answer(const std::string& uid, const TraceAnswer& answer,
              absl::Duration there_and_back = absl::Milliseconds(1)) {
    now_ += absl::Seconds(1);
    if (!collector_.QuestionFor(uid, now_)) return false;
    const absl::Time sent = now_;
    now_ += there_and_back;
    collector_.OnAnswer(uid, answer, sent, now_);
    return true;
  }
  // Steps [first, last], each with a computation and an exchange.
  TraceAnswer Steps(const std::string& uid, std::int64_t first, std::int64_t last,
                    std::uint64_t number = 0, absl::Duration ahead = absl::ZeroDuration()) {
    TraceAnswer answer;
    *answer.mutable_id() = Id(uid);
    answer.set_lockstep(true);
    answer.set_first(number);
    answer.set_now_nanos(absl::ToUnixNanos(now_ + absl::Seconds(1) + ahead));
    for (std::int64_t step = first; step <= last; ++step) {
      const absl::Time begin = now_ + absl::Milliseconds(10 * step) + ahead;
      Put(answer, TraceEvent::ACTIVITY, "compute", begin, absl::Milliseconds(6), step);
      Put(answer, TraceEvent::ACTIVITY, "exchange", begin + absl::Milliseconds(6),
          absl::Milliseconds(3), step);
      Put(answer, TraceEvent::STEP, "step", begin, absl::Milliseconds(9), step);
    }
    return answer;
  }
  static void Put(TraceAnswer& to, TraceEvent::Track track, const std::string& name,
                  absl::Time begin, absl::Duration how_long, std::int64_t step) {
    TraceEvent& event = *to.add_events();
    event.set_track(track);
    event.set_name(name);
    event.set_begin_nanos(absl::ToUnixNanos(begin));
    event.set_end_nanos(absl::ToUnixNanos(begin + how_long));
    event.set_step(step);
  }
  Collected Take() { return collector_.Take(now_, collector_.Ended(now_)); }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  Collector collector_;
};

TEST_F(CollectorTest, InLockstepItEndsWhenAllHaveTheStepsThatAllHadFromTheFirst) {
  EXPECT_TRUE(Answer("a", Steps("a", 5, 6)));
  EXPECT_EQ(collector_.Ended(now_), "") << "the other one has said nothing";
  EXPECT_TRUE(Answer("b", Steps("b", 6, 7)));
  EXPECT_EQ(collector_.Ended(now_), "") << "steps 6 to 8 are wanted";
  EXPECT_TRUE(Answer("a", Steps("a", 7, 9, 6)));
  EXPECT_EQ(collector_.Ended(now_), "");
  EXPECT_TRUE(Answer("b", Steps("b", 8, 8, 6)));
  EXPECT_THAT(collector_.Ended(now_), HasSubstr("3 steps"));
  const Collected all = Take();
  ASSERT_EQ(all.series.size(), 2U);
  EXPECT_EQ(all.series[0].who.pod, "w-0");
  EXPECT_EQ(all.series[0].steps, 5);
  EXPECT_EQ(all.series[1].first_step, 6);
  EXPECT_EQ(all.series[1].last_step, 8);
  EXPECT_TRUE(all.silent.empty());
}

TEST_F(CollectorTest, WhatWasAnsweredTwiceIsThereOnceAndOneQuestionIsUnderWayAtATime) {
  EXPECT_TRUE(Answer("a", Steps("a", 5, 6)));
  EXPECT_TRUE(Answer("a", Steps("a", 5, 6)));
  EXPECT_EQ(collector_.QuestionFor("a", now_ + absl::Seconds(1))->after(), 6U);
  EXPECT_FALSE(collector_.QuestionFor("a", now_ + absl::Seconds(2)).has_value());
  EXPECT_FALSE(collector_.QuestionFor("nobody", now_).has_value());
  EXPECT_EQ(Take().series[0].events.size(), 6U);
}

TEST_F(CollectorTest, AProcessThatFollowsAnotherIsASeriesOfItsOwnAndTheFirstOnesStaysKnown) {
  EXPECT_TRUE(Answer("a", Steps("a", 1, 2)));
  TraceAnswer second = Steps("a", 3, 3);
  second.mutable_id()->set_start(1);
  EXPECT_TRUE(Answer("a", second));
  EXPECT_EQ(collector_.QuestionFor("a", now_ + absl::Seconds(1))->after(), 3U);
  const Collected all = Take();
  ASSERT_EQ(all.series.size(), 2U);
  EXPECT_EQ(all.series[0].steps, 2);
  EXPECT_EQ(all.series[1].steps, 1);
}

TEST_F(CollectorTest, WhoDoesNotAnswerIsNamedAndNotWaitedFor) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Answer("a", Steps("a", 3 * i + 1, 3 * i + 3, 9 * i)));
  EXPECT_EQ(collector_.Ended(now_), "") << "b has not been asked";
  ASSERT_TRUE(collector_.QuestionFor("b", now_).has_value());
  collector_.OnFailure("b", "it is of a version that records no timeline");
  EXPECT_EQ(collector_.Ended(now_), "");
  EXPECT_TRUE(Answer("a", Steps("a", 13, 15, 36)));
  EXPECT_TRUE(Answer("a", Steps("a", 16, 18, 45)));
  EXPECT_TRUE(Answer("a", Steps("a", 19, 21, 54)));
  EXPECT_THAT(collector_.Ended(now_), HasSubstr("3 steps"));
  const Collected all = Take();
  EXPECT_EQ(all.series.size(), 1U);
  EXPECT_EQ(all.silent.at("w-1"), "it is of a version that records no timeline");
}

TEST_F(CollectorTest, WhoIsGoneIsNotWaitedForAndItsPartStays) {
  EXPECT_TRUE(Answer("a", Steps("a", 1, 2)));
  EXPECT_TRUE(Answer("b", Steps("b", 1, 2)));
  Members({{"a", {"w-0", "n1"}}});
  EXPECT_TRUE(Answer("a", Steps("a", 3, 3, 6)));
  EXPECT_NE(collector_.Ended(now_), "");
  EXPECT_EQ(Take().series.size(), 2U);
}

TEST_F(CollectorTest, ItsTimeAndItsRoomAreBounded) {
  EXPECT_EQ(collector_.Ended(now_), "");
  EXPECT_THAT(collector_.Ended(now_ + absl::Seconds(30)), HasSubstr("time"));
  Collector small({.job = "j", .request = "r", .most_events = 4}, now_, now_);
  small.SetMembers({{"a", {"w-0", "n1"}}});
  ASSERT_TRUE(small.QuestionFor("a", now_).has_value());
  small.OnAnswer("a", Steps("a", 1, 9), now_, now_);
  EXPECT_THAT(small.Ended(now_), HasSubstr("full"));
  EXPECT_EQ(small.Take(now_, "").series[0].events.size(), 4U);
}

TEST_F(CollectorTest, AClockCountsAsOursUnlessItCannotBe) {
  TraceAnswer near = Steps("a", 1, 1);
  near.set_now_nanos(absl::ToUnixNanos(now_ + absl::Seconds(1) + absl::Microseconds(700)));
  EXPECT_TRUE(Answer("a", near));
  EXPECT_TRUE(Answer("b", Steps("b", 1, 1, 0, absl::Seconds(5))));
  // A slower way there and back knows less.
  EXPECT_TRUE(Answer("b", Steps("b", 2, 2, 3, absl::Seconds(9)), absl::Milliseconds(100)));
  const Collected all = Take();
  EXPECT_EQ(all.series[0].offset, absl::ZeroDuration());
  EXPECT_EQ(all.series[0].uncertainty, absl::Microseconds(500));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(all.series[1].offset), 5000, 0.6);
}

// What a viewer requires, and this program promises.
std::vector<std::string> ProblemsOf(const json& trace) {
  std::vector<std::string> problems;
  std::map<std::pair<int, int>, double> until;
  std::map<std::pair<int, int>, double> newest;
  for (const json& event : trace.at("traceEvents")) {
    const std::string kind = event.at("ph");
    if (kind == "M") continue;
    const std::pair track(event.at("pid").get<int>(), event.at("tid").get<int>());
    const double begin = event.at("ts");
    if (begin < newest[track]) problems.push_back("not in order: " + event.dump());
    newest[track] = begin;
    if (kind == "i") continue;
    if (kind != "X" || event.at("dur").get<double>() <= 0) problems.push_back("no end: " + kind);
    if (begin < until[track] - 1e-3) problems.push_back("overlaps: " + event.dump());
    until[track] = begin + event.at("dur").get<double>();
  }
  return problems;
}

TEST_F(CollectorTest, TheFileIsWhatViewersOpen) {
  EXPECT_TRUE(Answer("a", Steps("a", 1, 3)));
  EXPECT_TRUE(Answer("b", Steps("b", 1, 3, 0, absl::Seconds(5))));
  collector_.OnNews({now_, "WorkerLost", {{"message", "a \"quoted\" \x01 \xff one"}}});
  const std::string text = ChromeTrace(Take());
  const auto trace = json::parse(text);
  EXPECT_THAT(ProblemsOf(trace), ::testing::IsEmpty());
  std::map<std::string, int> count;
  for (const json& event : trace["traceEvents"]) ++count[event["name"]];
  EXPECT_EQ(count["compute"], 6);
  EXPECT_EQ(count["step"], 6);
  EXPECT_EQ(count["WorkerLost"], 1);
  EXPECT_EQ(count["process_name"], 3);
  EXPECT_EQ(trace["otherData"]["members"][1]["pod"], "w-1");
  EXPECT_EQ(trace["otherData"]["members"][0]["lastStep"], 3);
  // Both clocks are as ours, though one is five seconds ahead.
  double begin[4] = {};
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "step" && event["args"]["step"] == 1) {
      begin[event["pid"].get<std::size_t>()] = event["ts"];
    }
  }
  EXPECT_NEAR(begin[3] - begin[2], 1'001'000, 1000);
}

TEST_F(CollectorTest, AFileThatIsWrongIsFoundOut) {
  EXPECT_TRUE(Answer("a", Steps("a", 1, 3)));
  json trace = json::parse(ChromeTrace(Take()));
  ASSERT_THAT(ProblemsOf(trace), ::testing::IsEmpty());
  json longer = trace;
  for (json& event : longer["traceEvents"]) {
    if (event["name"] == "compute") event["dur"] = 50'000;
  }
  EXPECT_THAT(ProblemsOf(longer), ::testing::Not(::testing::IsEmpty()));
  std::swap(trace["traceEvents"].back(), trace["traceEvents"][trace["traceEvents"].size() - 4]);
  EXPECT_THAT(ProblemsOf(trace), ::testing::Not(::testing::IsEmpty()));
}

TEST_F(CollectorTest, WaitingIsTheFirstPartOfItsExchange) {
  TraceAnswer answer = Steps("a", 1, 1);
  const TraceEvent exchange = answer.events(1);
  Put(answer, TraceEvent::WAITING, "waiting", absl::FromUnixNanos(exchange.begin_nanos()),
      absl::Milliseconds(2), 1);
  Put(answer, TraceEvent::WAITING, "waiting", absl::FromUnixNanos(exchange.begin_nanos() + 7),
      absl::Milliseconds(2), 1);  // of nothing that is here
  EXPECT_TRUE(Answer("a", answer));
  const json trace = json::parse(ChromeTrace(Take()));
  EXPECT_THAT(ProblemsOf(trace), ::testing::IsEmpty());
  std::map<std::string, double> spent;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["tid"] == 1) spent[event["name"]] += event["dur"].get<double>();
  }
  EXPECT_EQ(spent, (std::map<std::string, double>{
                       {"compute", 6000}, {"waiting", 2000}, {"exchange", 1000}}));
}

TEST_F(CollectorTest, WhatIsTooLargeLosesItsEnd) {
  EXPECT_TRUE(Answer("a", Steps("a", 1, 1000)));
  const Collected all = Take();
  const std::string whole = PackedChromeTrace(all, 1 << 20);
  const std::string packed = PackedChromeTrace(all, whole.size() / 3);
  EXPECT_LE(packed.size(), whole.size() / 3);
  const json trace = json::parse(*gzip::Unpack(packed, 1 << 24));
  EXPECT_THAT(ProblemsOf(trace), ::testing::IsEmpty());
  EXPECT_GT(trace["otherData"]["members"][0]["leftOut"], 100);
}

}  // namespace
}  // namespace starling::timeline
