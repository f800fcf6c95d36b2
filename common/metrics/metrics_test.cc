// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "common/http/raw_client.h"
#include "common/metrics/metrics_endpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Metrics, TheTextShowsNameHelpLabelsAndValue) {
  Registry registry;
  registry.AddCounter("starling_steps_total", "Steps applied.", {{"job", "digits"}}).Increment(3);
  registry.AddGauge("starling_workers", "Workers that train.").Set(2.5);
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, HasSubstr("# HELP starling_steps_total Steps applied.\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE starling_steps_total counter\n"));
  EXPECT_THAT(text, HasSubstr("starling_steps_total{job=\"digits\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("starling_workers 2.5\n"));
}

TEST(Metrics, TheSameNameAndLabelsAreTheSameMetric) {
  Registry registry;
  registry.AddCounter("a_total", "A.", {{"x", "1"}}).Increment();
  registry.AddCounter("a_total", "A.", {{"x", "1"}}).Increment();
  registry.AddCounter("a_total", "A.", {{"x", "2"}}).Increment();
  EXPECT_EQ(registry.AddCounter("a_total", "A.", {{"x", "1"}}).Value(), 2);
}

TEST(Metrics, AHelpTextOfSeveralLinesStaysOnOne) {
  Registry registry;
  registry.AddCounter("a_total", "one\ntwo \\ three\r").Increment();
  EXPECT_THAT(registry.Serialize(), HasSubstr("# HELP a_total one\\ntwo \\\\ three \n"));
}

TEST(Metrics, LabelValuesAreEscapedAndAlwaysValidUtf8) {
  Registry registry;
  registry.AddGauge("a", "A.", {{"x", "q\"\n\\ \xff\xc0\xaf \xed\xa0\x80 \xc3\xa4"}}).Set(1);
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, HasSubstr("q\\\"\\n\\\\ \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD "));
  EXPECT_THAT(text, HasSubstr("\xc3\xa4"));
  EXPECT_THAT(text, Not(HasSubstr("\xff")));
}

TEST(Metrics, WhatIsNotANumberOrFallsDoesNotPoisonCountersAndHistograms) {
  Registry registry;
  Counter counter = registry.AddCounter("a_total", "A.");
  counter.Increment(2);
  counter.Increment(kNan);
  counter.Increment(-1);
  EXPECT_EQ(counter.Value(), 2);
  Histogram histogram = registry.AddHistogram("b_seconds", "B.", {}, {1, 10});
  histogram.Observe(0.5);
  histogram.Observe(kNan);
  EXPECT_THAT(registry.Serialize(), HasSubstr("b_seconds_count 1\nb_seconds_sum 0.5\n"));
  EXPECT_THAT(registry.Serialize(), HasSubstr("b_seconds_bucket{le=\"1\"} 1\n"));
}

TEST(Metrics, AGaugeMayShowThatALossIsNotANumber) {
  Registry registry;
  registry.AddGauge("loss", "Loss.").Set(kNan);
  EXPECT_THAT(registry.Serialize(), HasSubstr("loss Nan\n"));
}

TEST(Metrics, RemovedSeriesEndAndOthersStay) {
  Registry registry;
  registry.AddGauge("a", "A.", {{"job", "x"}, {"pod", "1"}}).Set(1);
  registry.AddGauge("a", "A.", {{"job", "x"}, {"pod", "2"}}).Set(2);
  registry.AddGauge("a", "A.", {{"job", "y"}, {"pod", "1"}}).Set(3);
  registry.Remove("a", {{"job", "x"}});
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, Not(HasSubstr("job=\"x\"")));
  EXPECT_THAT(text, HasSubstr("job=\"y\""));
}

TEST(Metrics, AHandleMadeByDefaultCountsNothing) {
  Counter counter;
  counter.Increment();
  EXPECT_EQ(counter.Value(), 0);
  Gauge gauge;
  gauge.Set(1);
  Histogram histogram;
  histogram.Observe(1);
}

TEST(Metrics, ThreadsCountTogether) {
  Registry registry;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&registry] {
      for (int k = 0; k < 1000; ++k) registry.AddCounter("a_total", "A.").Increment();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(registry.AddCounter("a_total", "A.").Value(), 4000);
}

using MetricsDeathTest = ::testing::Test;

TEST(MetricsDeathTest, BadNamesAreOurOwnMistake) {
  Registry registry;
  registry.AddCounter("a_total", "A.");
  EXPECT_DEATH(registry.AddCounter("a b", "A."), "metric's name");
  EXPECT_DEATH(registry.AddGauge("a_total", "A."), "one kind");
  EXPECT_DEATH(registry.AddHistogram("h", "H.", {{"le", "1"}}), "label's name");
}

http::Request Get(std::string target) {
  return {.method = "GET", .target = std::move(target), .body = "", .headers = {}};
}

TEST(MetricsEndpoint, ShowsMetricsHealthAndReadiness) {
  Registry registry;
  registry.AddGauge("a", "A.").Set(1);
  std::string why = "no view yet";
  const Readiness not_ready = [&why] { return why; };
  EXPECT_THAT(Answer(Get("/metrics?x=1"), registry, not_ready).body, HasSubstr("a 1\n"));
  EXPECT_EQ(Answer(Get("/healthz"), registry, not_ready).status, 200);
  EXPECT_EQ(Answer(Get("/readyz"), registry, not_ready).status, 503);
  EXPECT_EQ(Answer(Get("/readyz"), registry, not_ready).body, "no view yet\n");
  why = "";
  EXPECT_EQ(Answer(Get("/readyz"), registry, not_ready).status, 200);
  EXPECT_EQ(Answer(Get("/readyz"), registry, nullptr).status, 200);
  EXPECT_EQ(Answer(Get("/other"), registry, nullptr).status, 404);
  http::Request post = Get("/metrics");
  post.method = "POST";
  EXPECT_EQ(Answer(post, registry, nullptr).status, 405);
}

TEST(MetricsEndpoint, ServesOnAPortOfItsOwn) {
  Registry registry;
  const auto endpoint = MetricsEndpoint::Start("127.0.0.1", 0, registry);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_GT((*endpoint)->port(), 0);
}

// 128 of them once had everybody else answered 503 for ten seconds.
TEST(MetricsEndpoint, ProbesAreAnsweredBesideHundredsOfIdleConnections) {
  Registry registry;
  const auto endpoint = MetricsEndpoint::Start("127.0.0.1", 0, registry);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  std::vector<std::unique_ptr<http::RawClient>> idle;
  for (int i = 0; i < 300; ++i) {
    idle.push_back(std::make_unique<http::RawClient>((*endpoint)->port()));
    ASSERT_TRUE(idle.back()->connected());
  }
  http::RawClient probe((*endpoint)->port());
  const auto began = std::chrono::steady_clock::now();
  probe.Send("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(probe.Receive(), HasSubstr("HTTP/1.1 200 OK"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
}

}  // namespace
}  // namespace starling::metrics
