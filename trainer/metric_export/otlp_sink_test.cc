// SPDX-License-Identifier: Apache-2.0
// Against an HTTP server on this machine that keeps what a collector is sent.
#include "trainer/metric_export/otlp_sink.h"

#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/http/http_server.h"
#include "common/json/json.h"
#include "common/sync/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::metric_export {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr char kUid[] = "0b9c4d1e-7a52-4f0e-9d3a-1f2e3d4c5b6a";
constexpr char kGiven[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

// Thread-safe.
class Collector {
 public:
  http::Response Answer(const http::Request& request) {
    const sync::MutexLock lock(mutex_);
    key_ = std::string(request.Header("api-key"));
    sent_.emplace_back(request.Path(), json::Parse(request.body).value());
    return {.status = status_, .body = answer_, .content_type = "application/json", .headers = {}};
  }
  void Say(int status, std::string answer) {
    const sync::MutexLock lock(mutex_);
    status_ = status;
    answer_ = std::move(answer);
  }
  std::vector<Json> Of(const std::string& path) const {
    const sync::MutexLock lock(mutex_);
    std::vector<Json> found;
    for (const auto& [to, body] : sent_) {
      if (to == path) found.push_back(body);
    }
    return found;
  }
  std::string key() const {
    const sync::MutexLock lock(mutex_);
    return key_;
  }
  std::vector<Json> Spans() const {
    std::vector<Json> spans;
    for (const Json& body : Of("/v1/traces")) {
      for (const Json& span : body["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
        spans.push_back(span);
      }
    }
    return spans;
  }

 private:
  mutable sync::Mutex mutex_;
  std::vector<std::pair<std::string, Json>> sent_ ABSL_GUARDED_BY(mutex_);
  int status_ ABSL_GUARDED_BY(mutex_) = 200;
  std::string answer_ ABSL_GUARDED_BY(mutex_) = "{}";
  std::string key_ ABSL_GUARDED_BY(mutex_);
};

absl::Time At(double seconds) {
  return absl::FromUnixSeconds(1'700'000'000) + absl::Seconds(seconds);
}

Event View(const std::string& name, double seconds) {
  return {Event::Kind::kView, At(seconds), name, {{"starling.members", "2"}}};
}

Event Lost(double seconds) {
  return {Event::Kind::kIncident, At(seconds), "WorkerLost", {{"starling.pod", "digits-worker-1"}}};
}

std::map<std::string, std::string> Pairs(const Json& attributes) {
  std::map<std::string, std::string> pairs;
  for (const Json& one : attributes) pairs[one["key"]] = one["value"]["stringValue"];
  return pairs;
}

class OtlpSinkTest : public ::testing::Test {
 protected:
  OtlpSinkTest() {
    auto server = http::HttpServer::Start(
        {}, [this](const http::Request& request) { return collector_.Answer(request); });
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<OtlpSink> Open(const std::string& traceparent = "") {
    auto sink = OtlpSink::Open({.uri = absl::StrCat("http://127.0.0.1:", server_->port()),
                                .job_name = "digits",
                                .job_uid = kUid,
                                .instance = "digits-coordinator-0",
                                .attributes = {{"team", "vision"}},
                                .headers = {{"api-key", "k"}},
                                .traceparent = traceparent});
    EXPECT_TRUE(sink.ok()) << sink.status();
    return *std::move(sink);
  }
  static Points Told(double seconds, std::vector<Event> events, bool last = false) {
    return {
        .step = 7, .time = At(seconds), .values = {}, .last = last, .events = std::move(events)};
  }

  Collector collector_;
  std::unique_ptr<http::HttpServer> server_;
};

TEST_F(OtlpSinkTest, MetricsAreGaugesOfTheJob) {
  const auto sink = Open();
  Points points = Told(1, {});
  points.values = {{"loss", 0.5}, {"validation/accuracy", std::nan("")}};
  ASSERT_TRUE(sink->Tell(points).ok());
  ASSERT_EQ(collector_.Of("/v1/metrics").size(), 1U);
  const Json told = collector_.Of("/v1/metrics")[0]["resourceMetrics"][0];
  EXPECT_THAT(
      Pairs(told["resource"]["attributes"]),
      UnorderedElementsAre(Pair("service.name", "starling"), Pair("team", "vision"),
                           Pair("service.instance.id", "digits-coordinator-0"),
                           Pair("starling.job.name", "digits"), Pair("starling.job.uid", kUid)));
  const Json metrics = told["scopeMetrics"][0]["metrics"];
  ASSERT_EQ(metrics.size(), 3U);
  EXPECT_EQ(metrics[0]["name"], "starling.step");
  EXPECT_EQ(metrics[0]["gauge"]["dataPoints"][0]["asInt"], "7");
  EXPECT_EQ(metrics[1]["name"], "starling.loss");
  EXPECT_EQ(metrics[1]["gauge"]["dataPoints"][0]["asDouble"], 0.5);
  EXPECT_EQ(metrics[1]["gauge"]["dataPoints"][0]["timeUnixNano"], "1700000001000000000");
  EXPECT_EQ(metrics[2]["gauge"]["dataPoints"][0]["asDouble"], "NaN");
  EXPECT_THAT(collector_.Spans(), IsEmpty());
  EXPECT_EQ(collector_.key(), "k");
}

TEST_F(OtlpSinkTest, AViewIsASpanThatEndsWithTheNextOneOrTheJob) {
  const auto sink = Open(kGiven);
  ASSERT_TRUE(sink->Tell(Told(0, {View("view 1-1", 0)})).ok());
  EXPECT_THAT(collector_.Spans(), IsEmpty()) << "it is not over";
  ASSERT_TRUE(sink->Tell(Told(5, {Lost(4.5), View("view 1-2", 5)})).ok());
  ASSERT_TRUE(sink->Tell(Told(9, {}, true)).ok());
  ASSERT_TRUE(sink->Tell(Told(9, {}, true)).ok());
  const std::vector<Json> spans = collector_.Spans();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0]["name"], "view 1-1");
  EXPECT_EQ(spans[0]["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(spans[0]["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_EQ(spans[0]["startTimeUnixNano"], "1700000000000000000");
  EXPECT_EQ(spans[0]["endTimeUnixNano"], "1700000005000000000");
  ASSERT_EQ(spans[0]["events"].size(), 1U);
  EXPECT_EQ(spans[0]["events"][0]["name"], "WorkerLost");
  EXPECT_EQ(spans[1]["name"], "view 1-2");
  EXPECT_EQ(spans[1]["endTimeUnixNano"], "1700000009000000000");
  EXPECT_THAT(spans[1]["events"], IsEmpty());
  EXPECT_EQ(spans[0]["spanId"].get<std::string>().size(), 16U);
  EXPECT_NE(spans[0]["spanId"], spans[1]["spanId"]);
  EXPECT_THAT(collector_.Of("/v1/metrics"), IsEmpty());
}

TEST_F(OtlpSinkTest, AJobOfNoTraceHasItsUidForOne) {
  const auto sink = Open("nonsense");
  ASSERT_TRUE(sink->Tell(Told(0, {View("view 1-1", 0)}, true)).ok());
  ASSERT_EQ(collector_.Spans().size(), 1U);
  EXPECT_EQ(collector_.Spans()[0]["traceId"], "0b9c4d1e7a524f0e9d3a1f2e3d4c5b6a");
  EXPECT_FALSE(collector_.Spans()[0].contains("parentSpanId"));
}

TEST_F(OtlpSinkTest, ATraceThatNobodyRecordsIsNotTold) {
  const auto sink = Open("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
  ASSERT_TRUE(sink->Tell(Told(0, {View("view 1-1", 0)}, true)).ok());
  EXPECT_THAT(collector_.Spans(), IsEmpty());
}

TEST_F(OtlpSinkTest, WhatTheCollectorRefusesIsToldWithARemedy) {
  const auto sink = Open();
  Points points = Told(1, {});
  points.values = {{"loss", 0.5}};
  collector_.Say(415, "only protobuf");
  const absl::Status foreign = sink->Tell(points);
  EXPECT_FALSE(foreign.ok());
  EXPECT_THAT(std::string(foreign.message()), HasSubstr("spec.export.otlp.uri"));
  collector_.Say(200, R"({"partialSuccess":{"rejectedDataPoints":"1","errorMessage":"too old"}})");
  EXPECT_THAT(std::string(sink->Tell(points).message()), HasSubstr("too old"));
  collector_.Say(200, R"({"partialSuccess":{}})");
  EXPECT_TRUE(sink->Tell(points).ok());
}

TEST(OtlpPairsTest, AreReadAsTheEnvironmentHasThem) {
  EXPECT_THAT(PairsIn(" api-key = a%20b ,team=vision,=x,broken,odd=50%"),
              ElementsAre(Pair("api-key", "a b"), Pair("odd", "50%"), Pair("team", "vision")));
  EXPECT_THAT(PairsIn(""), IsEmpty());
}

}  // namespace
}  // namespace starling::metric_export
