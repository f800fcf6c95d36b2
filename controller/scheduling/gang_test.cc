// SPDX-License-Identifier: Apache-2.0
#include "controller/scheduling/gang.h"

#include <fstream>
#include <set>

#include "controller/testing/test_facts.h"
#include "controller/testing/test_schema.h"
#include "gtest/gtest.h"

namespace starling::scheduling {
namespace {

Json ReadSchema(const std::string& name) {
  std::ifstream file(std::string(STARLING_SCHEMAS) + "/" + name + ".json");
  EXPECT_TRUE(file) << name;
  return Json::parse(file);
}

Gang TestGang() {
  const JobFacts facts = TestFacts();
  return {.job = facts.job,
          .owner = facts.owner,
          .least = 3,
          .queue = "research",
          .priority_class = "high",
          .scheduler_name = "",
          .timeout_seconds = 60};
}

std::vector<std::string> Problems(const Json& fields, const Json& spec) {
  std::vector<std::string> problems;
  CheckFields(fields, spec, "spec", problems);
  return problems;
}

Serves Installed(std::set<std::string> versions) {
  return [versions = std::move(versions)](const kube::ResourceKind& kind) -> absl::StatusOr<bool> {
    return versions.contains(kind.ApiVersion());
  };
}

struct DriverCase {
  GangDriver driver;
  const char* schema;
  const char* api_version;
  const char* mark;  // in the pod
  const char* value;
  const char* scheduler;
};

std::vector<DriverCase> Cases() {
  return {
      {Coscheduling(), "coscheduling_pod_group", "scheduling.x-k8s.io/v1alpha1",
       "/metadata/labels/scheduling.x-k8s.io~1pod-group", "digits", ""},
      {Volcano(), "volcano_pod_group", "scheduling.volcano.sh/v1beta1",
       "/metadata/annotations/scheduling.k8s.io~1group-name", "digits", "volcano"},
      {NativePodGroup(), "native_pod_group", "scheduling.k8s.io/v1alpha2",
       "/spec/schedulingGroup/podGroupName", "digits", ""},
      {NativeWorkload(), "native_workload", "scheduling.k8s.io/v1alpha1", "/spec/workloadRef/name",
       "digits", ""},
  };
}

TEST(GangDrivers, GroupsFollowTheirPublishedSchemas) {
  for (const DriverCase& row : Cases()) {
    const Json group = row.driver.group(TestGang());
    EXPECT_EQ(group["apiVersion"], row.api_version);
    EXPECT_EQ(group["metadata"]["name"], "digits");
    EXPECT_EQ(group["metadata"]["namespace"], "team");
    EXPECT_EQ(group["metadata"]["ownerReferences"][0]["uid"], "uid-1");
    EXPECT_EQ(Problems(ReadSchema(row.schema), group["spec"]), std::vector<std::string>())
        << group.dump(1);
    // The check would see a field that is not the API's, and a value that is none.
    Json wrong = group["spec"];
    wrong["minMembers"] = 3;
    EXPECT_EQ(Problems(ReadSchema(row.schema), wrong).size(), 1U);
  }
}

TEST(GangDrivers, GangIsOfTheSizeThatIsNeeded) {
  EXPECT_EQ(Coscheduling().group(TestGang())["spec"]["minMember"], 3);
  EXPECT_EQ(Coscheduling().group(TestGang())["spec"]["scheduleTimeoutSeconds"], 60);
  EXPECT_EQ(Volcano().group(TestGang())["spec"]["minMember"], 3);
  EXPECT_EQ(Volcano().group(TestGang())["spec"]["queue"], "research");
  EXPECT_EQ(NativePodGroup().group(TestGang())["spec"]["schedulingPolicy"]["gang"]["minCount"], 3);
  EXPECT_EQ(
      NativeWorkload().group(TestGang())["spec"]["podGroups"][0]["policy"]["gang"]["minCount"], 3);
}

TEST(GangDrivers, WhatIsNotGivenIsLeftOut) {
  Gang gang = TestGang();
  gang.queue = gang.priority_class = "";
  gang.timeout_seconds.reset();
  EXPECT_EQ(Coscheduling().group(gang)["spec"], Json({{"minMember", 3}}));
  EXPECT_EQ(Volcano().group(gang)["spec"], Json({{"minMember", 3}}));
}

TEST(GangDrivers, PodsBearTheMarkOfTheirGroup) {
  for (const DriverCase& row : Cases()) {
    const Json patch = row.driver.pod_patch(TestGang());
    EXPECT_EQ(patch.value(Json::json_pointer(row.mark), ""), row.value) << patch.dump();
    EXPECT_EQ(patch.value(Json::json_pointer("/spec/schedulerName"), ""), row.scheduler);
    Gang gang = TestGang();
    gang.scheduler_name = "second-scheduler";
    EXPECT_EQ(row.driver.pod_patch(gang)["spec"]["schedulerName"], "second-scheduler");
  }
}

TEST(SelectGangDriver, TakesWhatIsInstalledInOrderOfPreference) {
  const struct {
    std::set<std::string> installed;
    const char* wanted;
    const char* chosen;  // API version; empty: none
  } cases[] = {
      {{}, "auto", ""},
      {{"scheduling.k8s.io/v1alpha1"}, "auto", "scheduling.k8s.io/v1alpha1"},
      {{"scheduling.k8s.io/v1alpha1", "scheduling.k8s.io/v1alpha2"},
       "auto",
       "scheduling.k8s.io/v1alpha2"},
      {{"scheduling.volcano.sh/v1beta1", "scheduling.k8s.io/v1alpha2"},
       "auto",
       "scheduling.volcano.sh/v1beta1"},
      {{"scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1"},
       "auto",
       "scheduling.x-k8s.io/v1alpha1"},
      {{"scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1"},
       "volcano",
       "scheduling.volcano.sh/v1beta1"},
      {{"scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1"}, "none", ""},
      {{"scheduling.k8s.io/v1alpha1"}, "native", "scheduling.k8s.io/v1alpha1"},
  };
  for (const auto& row : cases) {
    const auto driver = SelectGangDriver(row.wanted, Installed(row.installed));
    ASSERT_TRUE(driver.ok()) << driver.status();
    EXPECT_EQ(driver->has_value() ? (*driver)->kind.ApiVersion() : "", row.chosen) << row.wanted;
  }
}

TEST(SelectGangDriver, SaysWhatIsMissingAndWhatThereIs) {
  const auto missing = SelectGangDriver("volcano", Installed({}));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kFailedPrecondition);
  const auto unknown = SelectGangDriver("vulcano", Installed({}));
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.status().message().find("auto, none, coscheduling, volcano, native"),
            absl::string_view::npos)
      << unknown.status();
  EXPECT_TRUE(IsGangSchedulerName("native"));
  EXPECT_FALSE(IsGangSchedulerName(""));
}

TEST(SelectGangDriver, PassesOnThatDiscoveryFailed) {
  const auto driver = SelectGangDriver("auto", [](const kube::ResourceKind&) {
    return absl::StatusOr<bool>(absl::UnavailableError("gone"));
  });
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace starling::scheduling
