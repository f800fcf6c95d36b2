// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/resources.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "controller/kube/message_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kubernetes/objects.pb.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const JobIdentity kJob{.ns = "team", .name = "digits", .uid = "0123456789abcdef"};
const Platform kLocal{.jobs_folder = "/home/me/starling/jobs", .image = ""};
const Platform kCluster{.jobs_folder = "", .image = "starling:1"};

Json Pod(Role role, const Platform& platform, const std::string& worker_template = "") {
  v1alpha1::TrainingJobSpec spec;
  if (!worker_template.empty()) {
    spec.mutable_replica_specs()->mutable_worker()->set_template_(worker_template);
  }
  auto pod = BuildPod(kJob, spec, {.role = role, .index = 3, .config_generation = 7}, platform);
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

TEST(Resources, EveryRoleHasANameThatReadsBack) {
  for (const Role role : kEveryRole) {
    EXPECT_EQ(ParseRole(RoleName(role)), role);
    EXPECT_FALSE(RoleField(role).empty());
    EXPECT_FALSE(RoleProgram(role).empty());
    EXPECT_FALSE(RoleWord(role).empty());
  }
  EXPECT_FALSE(ParseRole("server").has_value());
  EXPECT_EQ(PodName("digits", Role::kParameterServer, 0), "digits-parameter-server-0");
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
  EXPECT_EQ(CommandOf(Pod(Role::kCoordinator, kLocal)).size() + 4, command.size());
  EXPECT_FALSE(Contains(CommandOf(Pod(Role::kCoordinator, kLocal)), "--secret"));
}

TEST(Resources, AParameterServersPodIsAMembersWithItsOwnProgramTemplateAndSize) {
  v1alpha1::TrainingJobSpec spec;
  auto& role = *spec.mutable_replica_specs()->mutable_parameter_server();
  role.set_restart_policy(v1alpha1::RESTART_POLICY_EXIT_CODE);
  role.set_template_(R"({"spec": {"nodeSelector": {"disk": "fast"}}})");
  const PodRequest request{.role = Role::kParameterServer, .index = 3, .config_generation = 7};
  const auto pod = BuildPod(kJob, spec, request, kCluster);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ((*pod)["metadata"]["name"], "digits-parameter-server-3");
  EXPECT_EQ((*pod)["metadata"]["labels"]["starling.dev/role"], "parameter-server");
  EXPECT_EQ((*pod)["spec"]["nodeSelector"]["disk"], "fast");
  const std::vector<std::string> command = CommandOf(*pod);
  EXPECT_TRUE(Contains(command, "starling-server"));
  EXPECT_TRUE(Contains(command, "ExitCode"));
  EXPECT_EQ(command.size(), CommandOf(Pod(Role::kWorker, kCluster)).size());
  const Json* secret = Find((*pod)["spec"]["volumes"], "secret");
  ASSERT_NE(secret, nullptr);
  EXPECT_THAT(secret->dump(), HasSubstr("parameter-server.key"));
  EXPECT_THAT(secret->dump(), Not(HasSubstr("worker.key")));
  const Json& spread = (*pod)["spec"]["topologySpreadConstraints"][0];
  EXPECT_EQ(spread["labelSelector"]["matchLabels"]["starling.dev/role"], "parameter-server");
  const Json& requests = (*pod)["spec"]["containers"][0]["resources"]["requests"];
  EXPECT_EQ(requests["memory"], "256Mi");

  role.set_template_("[]");
  EXPECT_THAT(std::string(BuildPod(kJob, spec, request, kCluster).status().message()),
              HasSubstr("spec.replicaSpecs.parameterServer.template"));
}

TEST(Resources, ServersGoBesideWorkersWhereTheirTemplateSaysSo) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_replica_specs()->mutable_parameter_server()->set_template_(
      R"({"spec": {"topologySpreadConstraints": null, "affinity": {"podAffinity": {
          "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {
              "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {
                  "starling.dev/job": "digits", "starling.dev/role": "worker"}}}}]}}}})");
  const PodRequest request{.role = Role::kParameterServer, .avoid = {"broken"}};
  const auto pod = BuildPod(kJob, spec, request, kCluster);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_FALSE((*pod)["spec"].contains("topologySpreadConstraints"));
  const Json& beside =
      (*pod)["spec"]["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
  ASSERT_EQ(beside.size(), 1U);
  // The labels that it asks for are those of the job's workers.
  const Json worker = Pod(Role::kWorker, kCluster);
  for (const auto& [name, value] :
       beside[0]["podAffinityTerm"]["labelSelector"]["matchLabels"].items()) {
    EXPECT_EQ(worker["metadata"]["labels"].value(name, ""), value) << name;
  }
  // What the controller needs of the affinity stands beside it.
  EXPECT_TRUE((*pod)["spec"]["affinity"].contains("nodeAffinity"));
}

TEST(Resources, CoordinatorsOfWhichOneStandsByKeepAwayFromEachOther) {
  v1alpha1::TrainingJobSpec spec;
  const PodRequest request{.role = Role::kCoordinator, .avoid = {"broken"}};
  auto pod = BuildPod(kJob, spec, request, kCluster);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_FALSE((*pod)["spec"]["affinity"].contains("podAntiAffinity"));

  spec.mutable_replica_specs()->mutable_coordinator()->set_standby(true);
  pod = BuildPod(kJob, spec, request, kCluster);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_TRUE((*pod)["spec"]["affinity"].contains("nodeAffinity"));
  const Json& apart = (*pod)["spec"]["affinity"]["podAntiAffinity"]
                            ["preferredDuringSchedulingIgnoredDuringExecution"];
  ASSERT_EQ(apart.size(), 1U);
  for (const auto& [name, value] :
       apart[0]["podAffinityTerm"]["labelSelector"]["matchLabels"].items()) {
    EXPECT_EQ((*pod)["metadata"]["labels"].value(name, ""), value) << name;
  }
  pod = BuildPod(kJob, spec, {.role = Role::kWorker}, kCluster);
  EXPECT_FALSE((*pod)["spec"].contains("affinity"));
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

// A template, and what the refusal says of it.
struct Wrong {
  const char* text;
  const char* says;
};

class WrongTemplate : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongTemplate, IsRefusedByItsPath) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_replica_specs()->mutable_worker()->set_template_(GetParam().text);
  const auto refused = BuildPod(kJob, spec, {.role = Role::kWorker, .avoid = {"n1"}}, kCluster);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), ::testing::HasSubstr(GetParam().says));
  // It is nobody else's.
  EXPECT_TRUE(BuildPod(kJob, spec, {.role = Role::kCoordinator}, kCluster).ok());
}

INSTANTIATE_TEST_SUITE_P(
    Table, WrongTemplate,
    ::testing::Values(
        Wrong{"[1]", "spec.replicaSpecs.worker.template: must be an object"}, Wrong{"{", "line 1"},
        Wrong{R"({"spec": [1]})", "metadata and spec"},
        Wrong{R"({"metadata": 5})", "metadata and spec"},
        Wrong{R"({"metadata": {"labels": 5}})", "template.metadata"},
        Wrong{R"({"metadata": {"annotations": "x"}})", "template.metadata"},
        Wrong{R"({"spec": {"containers": 5}})", "template.spec.containers"},
        Wrong{R"({"spec": {"containers": null}})", "template.spec.containers"},
        Wrong{R"({"spec": {"containers": [{"name": "trainer", "resources": 5}]}})",
              "containers.trainer.resources"},
        Wrong{R"({"spec": {"containers": [{"name": "trainer", "resources": {"limits": []}}]}})",
              "containers.trainer.resources"},
        Wrong{R"({"spec": {"affinity": "x"}})", "template.spec.affinity"},
        Wrong{R"({"spec": {"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [5]}}}}})",
              "template.spec.affinity"}));

TEST(Resources, TemplateMayHaveAnyShapeWithoutHarm) {
  for (const char* field :
       {"containers", "volumes", "affinity", "securityContext", "tolerations"}) {
    for (const char* value : {"0", "\"x\"", "[]", "[0]", "{}", "[[]]", "[{}]", "null"}) {
      v1alpha1::TrainingJobSpec spec;
      spec.mutable_replica_specs()->mutable_worker()->set_template_(
          std::string(R"({"spec": {")") + field + R"(": )" + value + "}}");
      // Not to crash is all that is asked: what it means, the API server says.
      const auto pod = BuildPod(kJob, spec, {.avoid = {"n1"}, .memory = "1Gi"}, kCluster);
      EXPECT_TRUE(pod.ok() || absl::IsInvalidArgument(pod.status())) << field << value;
    }
  }
}

TEST(Resources, VolumeVariableAndProbeOfTheSameNameAreReplacedWhole) {
  const Json pod = Pod(Role::kWorker, kCluster, R"({"spec": {
      "volumes": [{"name": "job", "persistentVolumeClaim": {"claimName": "c"}}],
      "containers": [{"name": "trainer",
                      "env": [{"name": "POD_IP", "value": "10.0.0.1"}],
                      "startupProbe": {"exec": {"command": ["true"]}}}]}})");
  EXPECT_EQ(*Find(pod["spec"]["volumes"], "job"),
            Json({{"name", "job"}, {"persistentVolumeClaim", {{"claimName", "c"}}}}));
  const Json& trainer = pod["spec"]["containers"][0];
  EXPECT_EQ(*Find(trainer["env"], "POD_IP"), Json({{"name", "POD_IP"}, {"value", "10.0.0.1"}}));
  EXPECT_FALSE(trainer["startupProbe"].contains("httpGet"));
  EXPECT_EQ(trainer["startupProbe"]["periodSeconds"], 5);
}

TEST(Resources, PodInAClusterAsksForLittleAndMayDoLittle) {
  for (const Role role : {Role::kCoordinator, Role::kWorker}) {
    const Json pod = Pod(role, kCluster);
    const Json& spec = pod["spec"];
    EXPECT_EQ(spec["securityContext"]["runAsNonRoot"], true);
    EXPECT_EQ(spec["securityContext"]["runAsUser"], 65532);
    EXPECT_EQ(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    EXPECT_EQ(spec["automountServiceAccountToken"], false);
    EXPECT_EQ(spec["enableServiceLinks"], false);
    EXPECT_EQ(spec["subdomain"], "digits");
    EXPECT_EQ(spec["hostname"], pod["metadata"]["name"]);
    const Json& trainer = spec["containers"][0];
    EXPECT_EQ(trainer["securityContext"]["allowPrivilegeEscalation"], false);
    EXPECT_EQ(trainer["securityContext"]["readOnlyRootFilesystem"], true);
    EXPECT_EQ(trainer["securityContext"]["capabilities"]["drop"], Json::array({"ALL"}));
    EXPECT_TRUE(trainer["resources"]["requests"].contains("cpu"));
    EXPECT_FALSE(trainer["resources"].contains("limits"));
    EXPECT_EQ(trainer["workingDir"], "/opt/starling");
  }
  // None of it means anything to processes of this machine.
  EXPECT_FALSE(Pod(Role::kWorker, kLocal)["spec"].contains("securityContext"));
}

TEST(Resources, WhatIsWrittenLiesInVolumes) {
  const Json pod = Pod(Role::kWorker, kCluster);
  const std::vector<std::string> command = CommandOf(pod);
  std::vector<std::string> writable;
  for (const Json& mount : pod["spec"]["containers"][0]["volumeMounts"]) {
    if (!mount.value("readOnly", false)) writable.push_back(mount["mountPath"]);
    EXPECT_NE(Find(pod["spec"]["volumes"], mount["name"].get<std::string>()), nullptr);
  }
  EXPECT_THAT(writable, ::testing::UnorderedElementsAre("/run/starling", "/tmp", "/dev/shm",
                                                        "/var/lib/starling/job"));
  for (const char* flag : {"--job-dir", "--exit-record", "--progress-file"}) {
    const auto at = std::find(command.begin(), command.end(), flag);
    ASSERT_NE(at, command.end()) << flag;
    EXPECT_TRUE(std::any_of(writable.begin(), writable.end(), [&](const std::string& folder) {
      return (at + 1)->starts_with(folder);
    })) << flag;
  }
}

TEST(Resources, PodMountsItsOwnRolesLeafOnly) {
  for (const Role role : {Role::kCoordinator, Role::kWorker}) {
    const Json pod = Pod(role, kCluster);
    const Json* volume = Find(pod["spec"]["volumes"], "secret");
    ASSERT_NE(volume, nullptr);
    std::vector<std::string> keys;
    for (const Json& item : (*volume)["secret"]["items"]) keys.push_back(item["key"]);
    std::vector<std::string> expected = {"ca.crt", CertificateKey(role), PrivateKeyKey(role)};
    if (role == Role::kWorker) expected.push_back("data-plane");
    EXPECT_EQ(keys, expected);
    EXPECT_EQ((*volume)["secret"]["defaultMode"], 0400);
  }
}

struct ResourceCase {
  const char* given;
  const char* memory;
  const char* expected;
};

class PodResources : public ::testing::TestWithParam<ResourceCase> {};

TEST_P(PodResources, DefaultsStepBackAndRaisedMemoryWins) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_replica_specs()->mutable_worker()->set_template_(
      std::string(R"({"spec": {"containers": [{"name": "trainer", "resources": )") +
      GetParam().given + "}]}}");
  const auto pod = BuildPod(kJob, spec, {.memory = GetParam().memory}, kCluster);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ((*pod)["spec"]["containers"][0]["resources"], Json::parse(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Table, PodResources,
    ::testing::Values(ResourceCase{"{}", "", R"({"requests": {"cpu": "500m", "memory": "512Mi"}})"},
                      ResourceCase{
                          R"({"limits": {"memory": "96Mi"}})", "",
                          R"({"limits": {"memory": "96Mi"}, "requests": {"cpu": "500m"}})"},
                      ResourceCase{R"({"requests": {"memory": "1Gi", "cpu": "2"}})", "",
                                   R"({"requests": {"memory": "1Gi", "cpu": "2"}})"},
                      ResourceCase{R"({"limits": {"memory": "96Mi", "cpu": "1"}})", "144Mi",
                                   R"({"limits": {"memory": "144Mi", "cpu": "1"},
                         "requests": {"memory": "144Mi"}})"}));

TEST(Resources, AvoidedNodesAreExcludedFromEveryAlternative) {
  const PodRequest request{.avoid = {"n1", "n2"}};
  const Json excluded = Json::parse(R"([
      {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]},
      {"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}])");
  const auto terms = [](const Json& pod) {
    return pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
              ["nodeSelectorTerms"];
  };
  const auto plain = BuildPod(kJob, {}, request, kCluster);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(terms(*plain), Json::array({{{"matchFields", excluded}}}));

  v1alpha1::TrainingJobSpec spec;
  spec.mutable_replica_specs()->mutable_worker()->set_template_(R"({"spec": {"affinity": {
      "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
          {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
          {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}}}})");
  const auto chosen = BuildPod(kJob, spec, request, kCluster);
  ASSERT_TRUE(chosen.ok());
  ASSERT_EQ(terms(*chosen).size(), 2U);
  for (const Json& term : terms(*chosen)) {
    EXPECT_EQ(term["matchFields"], excluded);
    EXPECT_EQ(term["matchExpressions"].size(), 1U);
  }
  EXPECT_FALSE(Pod(Role::kWorker, kCluster)["spec"].contains("affinity"));
}

TEST(Resources, AnnotationsOfTheRequestAreThere) {
  const auto pod =
      BuildPod(kJob, {}, {.config_generation = 4, .annotations = {{"a", "b"}}}, kCluster);
  ASSERT_TRUE(pod.ok());
  EXPECT_EQ((*pod)["metadata"]["annotations"],
            Json({{"a", "b"}, {"starling.dev/generation", "4"}}));
}

TEST(Resources, NullInATemplateRemoves) {
  const Json merged = MergeTemplate({{"a", 1}, {"b", {{"c", 2}, {"d", 3}}}},
                                    {{"a", nullptr}, {"b", {{"c", nullptr}}}});
  EXPECT_EQ(merged, Json({{"b", {{"d", 3}}}}));
}

TEST(Resources, FrozenSpecIsReadAnewByTheKubelet) {
  const Json config = kube::ToJson(BuildConfig(kJob, 2, "{}", R"({"seed":1})"));
  EXPECT_EQ(config["metadata"]["name"], "digits-resolved-2");
  EXPECT_FALSE(config.contains("immutable"));
  EXPECT_EQ(config["data"]["spec.json"], R"({"seed":1})");
}

TEST(Resources, BudgetIsOfTheWorkers) {
  const Json budget = kube::ToJson(BuildBudget(kJob, Role::kWorker));
  EXPECT_EQ(budget["spec"]["maxUnavailable"], 1);
  EXPECT_EQ(budget["spec"]["selector"]["matchLabels"],
            Json({{"starling.dev/job", "digits"}, {"starling.dev/role", "worker"}}));
}

// The scale subresource, from which the number that may go would be counted, speaks of workers.
TEST(Resources, BudgetOfTheServersKeepsOne) {
  const Json budget = kube::ToJson(BuildBudget(kJob, Role::kParameterServer));
  EXPECT_EQ(budget["metadata"]["name"], "digits-parameter-server");
  EXPECT_EQ(budget["spec"]["minAvailable"], 1);
  EXPECT_FALSE(budget["spec"].contains("maxUnavailable"));
  EXPECT_EQ(budget["spec"]["selector"]["matchLabels"]["starling.dev/role"], "parameter-server");
}

TEST(Resources, ServiceIsHeadless) {
  const Json service = kube::ToJson(BuildService(kJob));
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_FALSE(service["spec"].contains("selector")) << "its endpoints are ours to write";
  // Names lead to addresses of every family that the pods have.
  EXPECT_EQ(service["spec"]["ipFamilyPolicy"], "PreferDualStack");
}

}  // namespace
}  // namespace starling::resources
