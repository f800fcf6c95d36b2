// SPDX-License-Identifier: Apache-2.0
#include "api/spec/checkpoint_request.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::spec {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json Job() {
  return json::parse(R"({
    "metadata": {"name": "digits", "uid": "u-1", "annotations": {"team": "vision"}},
    "spec": {"workload": {"classification": {}}, "runPolicy": {"suspend": false}}})");
}

TEST(CheckpointRequest, APatchAsksThisVeryJobAndLeavesOtherAnnotationsAlone) {
  json job = Job();
  EXPECT_EQ(CheckpointRequestOf(job), "");
  const absl::Time now = absl::FromUnixNanos(1'763'866'800'000'000'001);
  job.merge_patch(CheckpointRequestPatch(job, now));
  EXPECT_EQ(CheckpointRequestOf(job), "2025-11-23T03:00:00.000000001Z");
  EXPECT_EQ(job["metadata"]["annotations"]["team"], "vision");
  EXPECT_EQ(CheckpointRequestPatch(job, now)["metadata"]["uid"], "u-1");
  EXPECT_NE(CheckpointRequestPatch(job, now),
            CheckpointRequestPatch(job, now + absl::Nanoseconds(1)));
}

TEST(CheckpointRequest, WhateverSomebodyHasWrittenIsAWordOfBoundedLength) {
  json job = Job();
  json& annotation = job["metadata"]["annotations"][kCheckpointRequest];
  annotation = std::string(10'000, 'x');
  EXPECT_EQ(CheckpointRequestOf(job), std::string(64, 'x'));
  annotation = 7;
  EXPECT_EQ(CheckpointRequestOf(job), "");
  job["metadata"]["annotations"] = json::array({1});
  EXPECT_EQ(CheckpointRequestOf(job), "");
  EXPECT_EQ(CheckpointRequestOf(json()), "");
}

struct RefusalCase {
  const char* patch;
  const char* says;
};
constexpr RefusalCase kRefused[] = {
    {R"({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}})", "is finished"},
    {R"({"status": {"conditions": [{"type": "Failed", "status": "True"}]}})", "is finished"},
    {R"({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})", "is being deleted"},
    {R"({"spec": {"runPolicy": {"suspend": true}}})", "resume it first"},
    {R"({"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}})", "multikueue"},
    {R"({"spec": {"workload": {"container": {}}}})", "its own container"},
};

TEST(CheckpointRequest, WhereNobodyWouldWriteOneTheReasonIsTold) {
  EXPECT_TRUE(CheckCheckpointRequest(Job()).ok());
  for (const RefusalCase& refused : kRefused) {
    json job = Job();
    job.merge_patch(json::parse(refused.patch));
    const absl::Status status = CheckCheckpointRequest(job);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << refused.patch;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refused.says));
    EXPECT_THAT(std::string(status.message()), HasSubstr("job \"digits\""));
  }
  json begun = Job();
  begun["status"]["conditions"] = json::parse(R"([{"type": "Failed", "status": "False"}, 3])");
  EXPECT_TRUE(CheckCheckpointRequest(begun).ok());
}

}  // namespace
}  // namespace starling::spec
