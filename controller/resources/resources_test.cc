// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/resources.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

const JobIdentity kJob{.ns = "team", .name = "digits", .uid = "0123456789abcdef"};
const Platform kLocal{.jobs_folder = "/home/me/starling/jobs", .image = ""};
const Platform kCluster{.jobs_folder = "", .image = "starling:1"};

Json Pod(Role role, const Platform& platform, const std::string& worker_template = "") {
  v1alpha1::TrainingJobSpec spec;
  if (!worker_template.empty()) {
    spec.mutable_replica_specs()->mutable_worker()->set_template_(worker_template);
  }
  auto pod = BuildPod(kJob, spec, role, 3, 7, platform);
  EXPECT_TRUE(pod.ok()) << pod.status();
  return pod.ok() ? *pod : Json();
}

const Json* Find(const Json& list, std::string_view name) {
  for (const Json& item : list) {
    if (item.value("name", "") == name) return &item;
  }
  return nullptr;
}

std::vector<std::string> CommandOf(const Json& pod) {
  return pod["spec"]["containers"][0]["command"].get<std::vector<std::string>>();
}

bool Contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

TEST(Resources, NamesAreDerivedFromTheJob) {
  EXPECT_EQ(PodName("digits", Role::kWorker, 3), "digits-worker-3");
  EXPECT_EQ(PodName("digits", Role::kCoordinator, 0), "digits-coordinator-0");
  EXPECT_EQ(JobFolder("/jobs", kJob), "/jobs/team/digits-01234567");
  EXPECT_EQ(ParseConfigName("digits", ConfigName("digits", 12)), 12);
  EXPECT_FALSE(ParseConfigName("digits", "digits-resolved-x").has_value());
  EXPECT_FALSE(ParseConfigName("digits", "other-resolved-1").has_value());
}

TEST(Resources, PodIsFoundByItsLabelsAndGoesWithItsJob) {
  const Json pod = Pod(Role::kWorker, kLocal);
  const Json& metadata = pod["metadata"];
  EXPECT_EQ(metadata["labels"]["starling.dev/job"], "digits");
  EXPECT_EQ(metadata["labels"]["starling.dev/role"], "worker");
  EXPECT_EQ(metadata["labels"]["starling.dev/index"], "3");
  EXPECT_EQ(metadata["ownerReferences"][0]["uid"], kJob.uid);
  EXPECT_EQ(metadata["ownerReferences"][0]["controller"], true);
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
}

TEST(Resources, SupervisorComesFirstAndTheRoleAfterIt) {
  const std::vector<std::string> command = CommandOf(Pod(Role::kWorker, kLocal));
  EXPECT_EQ(command.front(), "starling-supervisor");
  const auto separator = std::find(command.begin(), command.end(), "--");
  ASSERT_NE(separator, command.end());
  EXPECT_EQ(*(separator + 1), "starling-worker");
  EXPECT_TRUE(Contains(command, "/home/me/starling/jobs/team/digits-01234567"));
  EXPECT_EQ(CommandOf(Pod(Role::kCoordinator, kLocal)).size() + 6, command.size());
}

TEST(Resources, LocalWorkersShareTheJobsFolder) {
  const Json pod = Pod(Role::kWorker, kLocal);
  const Json* job = Find(pod["spec"]["volumes"], "job");
  ASSERT_NE(job, nullptr);
  EXPECT_EQ((*job)["hostPath"]["path"], "/home/me/starling/jobs/team/digits-01234567");
  EXPECT_EQ(pod["spec"]["terminationGracePeriodSeconds"], 20);
}

TEST(Resources, WorkersInAClusterHaveTheirOwnDisk) {
  const Json pod = Pod(Role::kWorker, kCluster);
  const Json* job = Find(pod["spec"]["volumes"], "job");
  ASSERT_NE(job, nullptr);
  EXPECT_TRUE(job->contains("emptyDir"));
  EXPECT_EQ(pod["spec"]["containers"][0]["image"], "starling:1");
  EXPECT_EQ(pod["spec"]["terminationGracePeriodSeconds"], 30);
  EXPECT_TRUE(Contains(CommandOf(pod), "/dev/termination-log"));
}

TEST(Resources, PodMountsTheSpecOfItsGeneration) {
  const Json pod = Pod(Role::kCoordinator, kLocal);
  const Json* spec = Find(pod["spec"]["volumes"], "spec");
  ASSERT_NE(spec, nullptr);
  EXPECT_EQ((*spec)["configMap"]["name"], "digits-resolved-7");
}

TEST(Resources, TemplateIsMergedByContainerName) {
  const Json pod = Pod(Role::kWorker, kCluster, R"({"spec": {
      "nodeSelector": {"disk": "fast"},
      "containers": [{"name": "trainer", "image": "mine:2",
                      "env": [{"name": "A", "value": "1"}],
                      "resources": {"limits": {"cpu": "2"}}},
                     {"name": "sidecar", "image": "log:1"}]}})");
  const Json& containers = pod["spec"]["containers"];
  ASSERT_EQ(containers.size(), 2U);
  EXPECT_EQ(containers[0]["image"], "mine:2");
  EXPECT_EQ(containers[0]["command"][0], "starling-supervisor");
  EXPECT_NE(Find(containers[0]["env"], "POD_IP"), nullptr);
  EXPECT_NE(Find(containers[0]["env"], "A"), nullptr);
  EXPECT_EQ(containers[1]["name"], "sidecar");
  EXPECT_EQ(pod["spec"]["nodeSelector"]["disk"], "fast");
}

TEST(Resources, TemplateCannotTakeWhatTheControllerNeeds) {
  const Json pod = Pod(Role::kWorker, kCluster, R"({
      "metadata": {"labels": {"starling.dev/job": "other", "mine": "1"},
                   "name": "other", "ownerReferences": []},
      "spec": {"restartPolicy": "Always"}})");
  EXPECT_EQ(pod["metadata"]["labels"]["starling.dev/job"], "digits");
  EXPECT_EQ(pod["metadata"]["labels"]["mine"], "1");
  EXPECT_EQ(pod["metadata"]["name"], "digits-worker-3");
  EXPECT_EQ(pod["metadata"]["ownerReferences"].size(), 1U);
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
}

TEST(Resources, TemplateThatIsNoObjectIsRefusedByItsPath) {
  for (const char* text : {"[1]", R"({"spec": [1]})", "{"}) {
    v1alpha1::TrainingJobSpec spec;
    spec.mutable_replica_specs()->mutable_worker()->set_template_(text);
    EXPECT_FALSE(BuildPod(kJob, spec, Role::kWorker, 0, 1, kLocal).ok()) << text;
    EXPECT_TRUE(BuildPod(kJob, spec, Role::kCoordinator, 0, 1, kLocal).ok()) << text;
  }
}

TEST(Resources, NullInATemplateRemoves) {
  const Json merged = MergeTemplate({{"a", 1}, {"b", {{"c", 2}, {"d", 3}}}},
                                    {{"a", nullptr}, {"b", {{"c", nullptr}}}});
  EXPECT_EQ(merged, Json({{"b", {{"d", 3}}}}));
}

TEST(Resources, FrozenSpecIsImmutable) {
  const Json config = BuildConfig(kJob, 2, "{}", R"({"seed":1})");
  EXPECT_EQ(config["metadata"]["name"], "digits-resolved-2");
  EXPECT_EQ(config["immutable"], true);
  EXPECT_EQ(config["data"]["spec.json"], R"({"seed":1})");
}

TEST(Resources, SecretHoldsTheKeyInBase64) {
  const Json secret = BuildSecret(kJob, "key");
  EXPECT_EQ(secret["metadata"]["name"], "digits-secret");
  EXPECT_EQ(secret["data"]["data-plane"], "a2V5");
}

TEST(Resources, ServiceIsHeadless) {
  const Json service = BuildService(kJob);
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_EQ(service["spec"]["selector"]["starling.dev/job"], "digits");
}

}  // namespace
}  // namespace starling::resources
