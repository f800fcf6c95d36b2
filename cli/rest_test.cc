// SPDX-License-Identifier: Apache-2.0
// What the command line does over REST, as far as it is pure: patches, texts of streams, names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/event_stream.h"
#include "cli/rest_apply.h"
#include "cli/rest_client.h"
#include "cli/rest_logs.h"

namespace starling::cli {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;

Json Patch(const char* before, const char* now, const char* wanted) {
  return ThreeWayPatch(Json::parse(before), Json::parse(now), Json::parse(wanted));
}

TEST(ThreeWayPatchTest, OnlyWhatDiffersIsWritten) {
  EXPECT_EQ(Patch("{}", R"({"a":1,"b":{"c":2}})", R"({"a":1,"b":{"c":2}})"), Json::object());
  EXPECT_EQ(Patch("{}", R"({"a":1,"b":{"c":2,"d":3}})", R"({"a":5,"b":{"c":4}})"),
            Json::parse(R"({"a":5,"b":{"c":4}})"))
      << "d is somebody else's";
  EXPECT_EQ(Patch("{}", R"({"a":[1,2]})", R"({"a":[1]})"), Json::parse(R"({"a":[1]})"));
}

TEST(ThreeWayPatchTest, WhatTheFileSaidBeforeAndNoLongerSaysIsTakenBack) {
  EXPECT_EQ(Patch(R"({"a":1,"b":{"c":2,"d":3}})", R"({"a":1,"b":{"c":2,"d":3},"e":4})",
                  R"({"b":{"c":2}})"),
            Json::parse(R"({"a":null,"b":{"d":null}})"));
  EXPECT_EQ(Patch(R"({"a":1})", "{}", "{}"), Json::object()) << "it has gone already";
  EXPECT_EQ(Patch(R"({"a":{"b":1}})", R"({"a":{"b":1}})", R"({"a":3})"), Json::parse(R"({"a":3})"));
}

TEST(ThreeWayPatchTest, WithoutAMemoryNothingIsTakenBack) {
  EXPECT_EQ(ThreeWayPatch(Json(), Json::parse(R"({"a":1})"), Json::object()), Json::object());
  EXPECT_EQ(ThreeWayPatch(Json(), Json(), Json::parse(R"({"a":1})")), Json::parse(R"({"a":1})"));
}

TEST(EventTextTest, EventsAreTheSameHoweverTheTextIsCut) {
  const std::string text =
      "retry: 2000\n\n: hb\n\nid: 7\nevent: added\ndata: {\"a\":\r\ndata: 1}\r\n\r\n"
      "event: progress\ndata:{}\n\nevent: lost\ndata: {}\n";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    EventText reader;
    std::deque<ServerEvent> events;
    for (std::size_t at = 0; at < text.size(); at += size) {
      ASSERT_TRUE(reader.Take(std::string_view(text).substr(at, size), events).ok());
    }
    ASSERT_EQ(events.size(), 2U) << "an event that is not whole is none";
    EXPECT_EQ(events[0].name, "added");
    EXPECT_EQ(events[0].id, "7");
    EXPECT_EQ(events[0].data, Json::parse(R"({"a":1})"));
    EXPECT_EQ(events[1].id, "") << "an id is one event's";
    EXPECT_EQ(reader.retry(), absl::Seconds(2));
  }
}

TEST(EventTextTest, WhatIsNoEventBreaksTheStreamAndDoesNotFillTheMemory) {
  EventText reader;
  std::deque<ServerEvent> events;
  EXPECT_TRUE(absl::IsUnavailable(reader.Take("data: {{{\n\n", events)));
  EventText endless;
  const std::string much(1U << 20U, 'x');
  absl::Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) status = endless.Take(much, events);
  EXPECT_TRUE(absl::IsUnavailable(status));
}

TEST(HeardLinesTest, ALineIsNewOnceAndAPodThatTookAnothersNameBeginsAnew) {
  HeardLines heard;
  std::vector<std::string> told;
  const auto hear = [&](const std::vector<std::string>& lines) {
    heard.BeginAnew();
    for (const std::string& line : lines) {
      if (heard.Take("pod", line)) told.push_back(line);
    }
  };

  hear({"1", "same", "same"});
  hear({"1", "same"});
  hear({"1", "same", "same", "4"});
  hear({"other", "same"});

  EXPECT_THAT(told, ElementsAre("1", "same", "same", "4", "other", "same"));
}

TEST(JobOfPodTest, APodsNameSaysWhoseItIs) {
  EXPECT_EQ(JobOfPod("digits-worker-12"), "digits");
  EXPECT_EQ(JobOfPod("a-worker-0-parameter-server-3"), "a-worker-0");
  EXPECT_EQ(JobOfPod("digits-coordinator-0"), "digits");
  for (const char* other : {"digits", "-worker-0", "digits-worker-x", "digits-helper-0", ""}) {
    EXPECT_EQ(JobOfPod(other), "") << other;
  }
}

TEST(StatusOfProblemTest, ItsWordsAreTheFieldsElseWhatHappenedAndTheRemedy) {
  http::Response answer;
  answer.status = 422;
  answer.body =
      R"({"code":"InvalidJob","detail":"x","errors":[{"path":"spec.a","detail":"is wrong"},)"
      R"({"path":"spec.b","detail":"too"}]})";
  EXPECT_EQ(StatusOfProblem(answer), absl::InvalidArgumentError("spec.a: is wrong\nspec.b: too"));
  answer.status = 409;
  answer.body = R"({"code":"ModelNotKept","detail":"it is gone","remedy":"keep it"})";
  EXPECT_EQ(StatusOfProblem(answer), absl::FailedPreconditionError("it is gone; keep it"));
  for (const char* body : {"", "<html>", "[]", "{}"}) {
    answer.body = body;
    EXPECT_THAT(std::string(StatusOfProblem(answer).message()),
                HasSubstr("is this the address of Starling's REST service?"));
  }
}

}  // namespace
}  // namespace starling::cli
