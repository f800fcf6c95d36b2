// SPDX-License-Identifier: Apache-2.0
#include "api/spec/trace_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace starling::spec {
namespace {

using nlohmann::json;

json StoredJob() { return {{"metadata", {{"name", "digits"}, {"uid", "u-1"}}}}; }

TEST(TraceRequest, APatchSaysWhatIsWishedAndIsTakenBack) {
  json job = StoredJob();
  EXPECT_EQ(TraceRequestOf(job), "");
  const TraceWish wish{.steps = 7, .time = absl::Milliseconds(2500)};
  job.merge_patch(TraceRequestPatch(job, wish, absl::FromUnixSeconds(1'800'000'000)));
  EXPECT_EQ(TraceRequestOf(job), "steps=7,seconds=3,at=2027-01-15T08:00:00.000000000Z");
  EXPECT_EQ(ReadTraceRequest(TraceRequestOf(job)).steps, 7);
  EXPECT_EQ(ReadTraceRequest(TraceRequestOf(job)).time, absl::Seconds(3));
  job.merge_patch(TraceWithdrawal(job));
  EXPECT_EQ(TraceRequestOf(job), "");
}

TEST(TraceRequest, WhateverSomebodyHasWrittenIsBounded) {
  for (const char* word : {"", "now", "steps=", "steps=-1", "steps=x,seconds=y", "=,=,="}) {
    EXPECT_EQ(ReadTraceRequest(word).steps, 50) << word;
    EXPECT_EQ(ReadTraceRequest(word).time, absl::Seconds(30)) << word;
  }
  const TraceWish most = ReadTraceRequest("steps=99999999999,seconds=99999999999");
  EXPECT_EQ(most.steps, kMostTraceSteps);
  EXPECT_EQ(most.time, kMostTraceTime);
  json job = StoredJob();
  job["metadata"]["annotations"][kTraceRequest] = std::string(1000, 'x');
  EXPECT_EQ(TraceRequestOf(job).size(), 128U);
  job["metadata"]["annotations"] = 3;
  EXPECT_EQ(TraceRequestOf(job), "");
}

TEST(TraceRequest, AWishOutOfBoundsIsRefusedByName) {
  EXPECT_TRUE(CheckTraceWish({}).ok());
  EXPECT_FALSE(CheckTraceWish({.steps = 0}).ok());
  EXPECT_FALSE(CheckTraceWish({.steps = kMostTraceSteps + 1}).ok());
  EXPECT_FALSE(CheckTraceWish({.time = absl::Milliseconds(10)}).ok());
  EXPECT_FALSE(CheckTraceWish({.time = kMostTraceTime + absl::Seconds(1)}).ok());
}

TEST(TraceRequest, WhereNothingWouldBeRecordedTheReasonIsTold) {
  EXPECT_TRUE(CheckTraceRequest(StoredJob()).ok());
  json ended = StoredJob();
  ended["status"]["conditions"] = {{{"type", "Succeeded"}, {"status", "True"}}};
  json paused = StoredJob();
  paused["spec"]["runPolicy"]["suspend"] = true;
  json theirs = StoredJob();
  theirs["spec"]["workload"]["container"] = json::object();
  for (const json& job : {ended, paused, theirs}) {
    EXPECT_EQ(CheckTraceRequest(job).code(), absl::StatusCode::kFailedPrecondition) << job;
  }
}

}  // namespace
}  // namespace starling::spec
