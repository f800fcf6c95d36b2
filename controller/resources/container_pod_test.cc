// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/container_pod.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "controller/resources/rendezvous.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

const JobIdentity kJob{.ns = "team", .name = "ddp", .uid = "0123456789abcdef"};
const Platform kLocal{.jobs_folder = "/home/me/starling/jobs", .image = ""};
const Platform kCluster{.jobs_folder = "", .image = "starling:1"};
const Round kRound{.number = 3, .members = {0, 2, 5}};

constexpr char kTemplate[] = R"({"spec": {"containers": [
    {"name": "trainer", "image": "mine:2", "command": ["torchrun", "train.py"], "args": ["--lr=1"],
     "env": [{"name": "A", "value": "1"}, {"name": "MASTER_PORT", "value": "7"}]}]}})";

v1alpha1::TrainingJobSpec Spec(const std::string& text = kTemplate) {
  v1alpha1::TrainingJobSpec spec;
  v1alpha1::Container& container = *spec.mutable_workload()->mutable_container();
  container.set_framework(v1alpha1::CONTAINER_FRAMEWORK_PY_TORCH);
  container.set_processes_per_pod(2);
  container.set_port(29500);
  spec.mutable_replica_specs()->mutable_worker()->set_template_(text);
  return spec;
}

Json Pod(const v1alpha1::TrainingJobSpec& spec, std::int64_t index, const Platform& platform,
         const Round& round = kRound) {
  auto pod = BuildContainerPod(kJob, spec, {.index = index}, round, platform);
  EXPECT_TRUE(pod.ok()) << pod.status();
  return pod.ok() ? *pod : Json();
}

const Json& Trainer(const Json& pod) { return pod["spec"]["containers"][0]; }

// What the program sees: the pod's variables, and those that the supervisor adds.
std::map<std::string, std::string> Env(const Json& pod) {
  std::map<std::string, std::string> env;
  for (const Json& entry : Trainer(pod)["env"]) env[entry["name"]] = entry.value("value", "");
  const auto command = Trainer(pod)["command"].get<std::vector<std::string>>();
  for (std::size_t i = 0; i + 1 < command.size() && command[i] != "--"; ++i) {
    if (command[i] == "--job-dir") env.emplace("STARLING_JOB_DIR", command[i + 1]);
    if (command[i] != "--env") continue;
    const std::size_t equals = command[i + 1].find('=');
    env.emplace(command[i + 1].substr(0, equals), command[i + 1].substr(equals + 1));
  }
  return env;
}

bool HasNamed(const Json& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(),
                     [&](const Json& item) { return item.value("name", "") == name; });
}

TEST(ContainerPod, CommandIsRunByTheSupervisor) {
  const Json pod = Pod(Spec(), 2, kCluster);
  const auto command = Trainer(pod)["command"].get<std::vector<std::string>>();
  EXPECT_EQ(command.front(), "/run/starling/starling-supervisor");
  const auto separator = std::find(command.begin(), command.end(), "--");
  EXPECT_EQ(std::vector<std::string>(separator, command.end()),
            (std::vector<std::string>{"--", "torchrun", "train.py", "--lr=1"}));
  EXPECT_FALSE(Trainer(pod).contains("args"));
  const auto restarts = std::find(command.begin(), separator, "--max-restarts");
  ASSERT_NE(restarts, separator);
  EXPECT_EQ(*(restarts + 1), "0");
  EXPECT_EQ(Trainer(pod)["image"], "mine:2");
}

TEST(ContainerPod, InitContainerBringsTheSupervisorAndWaitsForRankZero) {
  const Json pod = Pod(Spec(), 2, kCluster);
  const Json& init = pod["spec"]["initContainers"][0];
  EXPECT_EQ(init["image"], "starling:1");
  EXPECT_EQ(init["command"],
            Json({"starling-supervisor", "--install", "/run/starling/starling-supervisor",
                  "--await-name", "ddp-worker-0.ddp"}));
  EXPECT_EQ(Pod(Spec(), 0, kCluster)["spec"]["initContainers"][0]["command"].size(), 3U);
  EXPECT_EQ(init["volumeMounts"], Json::array({{{"name", "run"}, {"mountPath", "/run/starling"}}}));
  EXPECT_TRUE(HasNamed(pod["spec"]["volumes"], "run"));
  EXPECT_TRUE(HasNamed(Trainer(pod)["volumeMounts"], "run"));
}

TEST(ContainerPod, InitContainerIsRestrictedWhateverThePodsUserIs) {
  const Json plain = Pod(Spec(), 0, kCluster)["spec"]["initContainers"][0]["securityContext"];
  EXPECT_EQ(plain["runAsNonRoot"], true);
  EXPECT_EQ(plain["allowPrivilegeEscalation"], false);
  EXPECT_EQ(plain["capabilities"]["drop"], Json({"ALL"}));
  EXPECT_FALSE(plain.contains("runAsUser"));
  const Json root =
      Pod(Spec(R"({"spec": {"securityContext": {"runAsUser": 0, "seccompProfile": null},
          "containers": [{"name": "trainer", "image": "mine:2", "command": ["run"]}]}})"),
          0, kCluster)["spec"]["initContainers"][0]["securityContext"];
  EXPECT_EQ(root["runAsUser"], 65532);
  EXPECT_EQ(root["seccompProfile"]["type"], "RuntimeDefault");
}

TEST(ContainerPod, JobsFolderIsOnThePodsDiskUnlessTheTemplatePlacesIt) {
  const Json plain = Pod(Spec(), 0, kCluster);
  EXPECT_EQ(Env(plain)["STARLING_JOB_DIR"], "/run/starling/job");
  EXPECT_FALSE(HasNamed(plain["spec"]["volumes"], "job"));
  const Json claimed = Pod(
      Spec(R"({"spec": {"volumes": [{"name": "job", "persistentVolumeClaim": {"claimName": "c"}}],
          "containers": [{"name": "trainer", "image": "mine:2", "command": ["run"]}]}})"),
      0, kCluster);
  EXPECT_EQ(Env(claimed)["STARLING_JOB_DIR"], "/var/lib/starling/job");
  EXPECT_TRUE(HasNamed(claimed["spec"]["volumes"], "job"));
  EXPECT_TRUE(HasNamed(Trainer(claimed)["volumeMounts"], "job"));
  const Json mounted = Pod(
      Spec(R"({"spec": {"volumes": [{"name": "mine", "persistentVolumeClaim": {"claimName": "c"}}],
          "containers": [{"name": "trainer", "image": "mine:2", "command": ["run"],
            "volumeMounts": [{"name": "mine", "mountPath": "/var/lib/starling/job"}]}]}})"),
      0, kCluster);
  EXPECT_EQ(Env(mounted)["STARLING_JOB_DIR"], "/var/lib/starling/job");
}

TEST(ContainerPod, ProgramsKnowTheTraceThatTheirJobBelongsTo) {
  EXPECT_FALSE(Env(Pod(Spec(), 0, kCluster)).contains("TRACEPARENT"));
  JobIdentity traced = kJob;
  traced.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const auto theirs = BuildContainerPod(traced, Spec(), {.index = 0}, kRound, kCluster);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_EQ(Env(*theirs)["TRACEPARENT"], traced.traceparent);
  const auto ours = BuildPod(traced, {}, {.role = Role::kWorker}, kCluster);
  ASSERT_TRUE(ours.ok()) << ours.status();
  EXPECT_EQ(Env(*ours)["TRACEPARENT"], traced.traceparent);
}

TEST(ContainerPod, WhatPeopleLookForStandsInThePodsDescription) {
  const Json pod = Pod(Spec(), 2, kCluster);
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"}) {
    EXPECT_TRUE(HasNamed(Trainer(pod)["env"], name)) << name;
  }
  // Every byte of a pod is written anew with each change of its status.
  EXPECT_LT(pod.dump().size(), 2600U) << pod.dump();
}

TEST(ContainerPod, VariableThatTheTemplateSpeaksOfStandsInThePodsDescription) {
  const Json pod = Pod(Spec(R"json({"spec": {"containers": [{"name": "trainer", "image": "mine:2",
      "command": ["run", "--rank=$(LOCAL_RANK)", "$LOCAL_WORLD_SIZE"]}]}})json"),
                       2, kCluster);
  EXPECT_TRUE(HasNamed(Trainer(pod)["env"], "LOCAL_RANK"));
  EXPECT_FALSE(HasNamed(Trainer(pod)["env"], "LOCAL_WORLD_SIZE"));
  EXPECT_EQ(Env(pod)["LOCAL_RANK"], "0");
  const auto command = Trainer(pod)["command"].get<std::vector<std::string>>();
  EXPECT_EQ(std::count(command.begin(), command.end(), "LOCAL_RANK=0"), 0);
}

TEST(ContainerPod, NothingIsSaidOfPlacesAndGroupsUnlessTheTemplateDoes) {
  const Json free = Pod(Spec(), 2, kCluster)["spec"];
  EXPECT_FALSE(free.contains("topologySpreadConstraints"));
  EXPECT_FALSE(free["securityContext"].contains("fsGroup"));
  EXPECT_EQ(free["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
  const Json bound = Pod(Spec(R"({"spec": {"securityContext": {"fsGroup": 7},
      "terminationGracePeriodSeconds": 5, "topologySpreadConstraints": [{"maxSkew": 2}],
      "containers": [{"name": "trainer", "image": "mine:2", "command": ["run"]}]}})"),
                         2, kCluster)["spec"];
  EXPECT_EQ(bound["securityContext"]["fsGroup"], 7);
  EXPECT_EQ(bound["terminationGracePeriodSeconds"], 5);
  EXPECT_EQ(bound["topologySpreadConstraints"].size(), 1U);
}

TEST(ContainerPod, InitContainersOfTheTemplateComeAfterOurs) {
  const Json pod = Pod(Spec(R"({"spec": {"initContainers": [{"name": "fetch", "image": "f:1"}],
      "containers": [{"name": "trainer", "image": "mine:2", "command": ["run"]}]}})"),
                       0, kCluster);
  ASSERT_EQ(pod["spec"]["initContainers"].size(), 2U);
  EXPECT_EQ(pod["spec"]["initContainers"][1]["name"], "fetch");
}

TEST(ContainerPod, LocallyItIsOneProcess) {
  const Json pod = Pod(Spec(), 2, kLocal);
  EXPECT_FALSE(pod["spec"].contains("initContainers"));
  EXPECT_EQ(Trainer(pod)["command"][0], "starling-supervisor");
  EXPECT_EQ(Env(pod)["MASTER_ADDR"], "127.0.0.1");
  EXPECT_EQ(Env(pod)["STARLING_JOB_DIR"], "/home/me/starling/jobs/team/ddp-01234567");
}

TEST(ContainerPod, LocalRoundsHavePortsOfTheirOwn) {
  const Round next{.number = 4, .members = kRound.members};
  EXPECT_NE(Env(Pod(Spec(), 2, kLocal))["PET_MASTER_PORT"],
            Env(Pod(Spec(), 2, kLocal, next))["PET_MASTER_PORT"]);
}

TEST(ContainerPod, TemplatesVariablesWin) {
  const auto env = Env(Pod(Spec(), 2, kCluster));
  EXPECT_EQ(env.at("A"), "1");
  EXPECT_EQ(env.at("MASTER_PORT"), "7");
  EXPECT_EQ(env.at("PET_MASTER_PORT"), "29500");
}

TEST(ContainerPod, DownwardVariablesAreThoseThatTheTemplateNames) {
  const auto env = Env(Pod(Spec(R"({"spec": {"containers": [{"name": "trainer", "image": "mine:2",
      "command": ["run", "--address=$(POD_IP):7"]}]
}
})"),
                           2, kCluster));
  EXPECT_TRUE(env.contains("POD_IP"));
  EXPECT_FALSE(env.contains("POD_NAMESPACE"));
}

TEST(ContainerPod, RankIsThePlaceInTheRound) {
  const auto env = Env(Pod(Spec(), 5, kCluster));
  EXPECT_EQ(env.at("MASTER_ADDR"), "ddp-worker-0.ddp");
  EXPECT_EQ(env.at("NODE_RANK"), "2");
  EXPECT_EQ(env.at("RANK"), "4");
  EXPECT_EQ(env.at("WORLD_SIZE"), "6");
  EXPECT_EQ(env.at("LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(env.at("STARLING_ROUND"), "3");
}

TEST(ContainerPod, StrangersGetNoneOfTheJobsCredentials) {
  const Json pod = Pod(Spec(), 2, kCluster);
  for (const Json& volume : pod["spec"]["volumes"]) {
    EXPECT_FALSE(volume.contains("secret")) << volume;
    EXPECT_FALSE(volume.contains("configMap")) << volume;
    EXPECT_FALSE(volume.contains("projected")) << volume;
  }
  for (const Json& mount : Trainer(pod)["volumeMounts"]) {
    EXPECT_TRUE(HasNamed(pod["spec"]["volumes"], mount["name"])) << mount;
  }
  EXPECT_TRUE(HasNamed(Trainer(pod)["volumeMounts"], "run"));
}

TEST(ContainerPod, UserAndProbesAreTheImagesOwn) {
  const Json free = Pod(Spec(), 2, kCluster);
  EXPECT_FALSE(Trainer(free).contains("ports"));
  EXPECT_FALSE(Trainer(free).contains("startupProbe"));
  EXPECT_FALSE(Trainer(free).contains("workingDir"));
  EXPECT_FALSE(HasNamed(Trainer(free)["volumeMounts"], "tmp"));
  EXPECT_FALSE(Trainer(free).contains("/securityContext/readOnlyRootFilesystem"_json_pointer));
  const Json bound = Pod(Spec(R"({"spec": {"securityContext": {"runAsNonRoot": true},
      "containers": [{"name": "trainer", "image": "mine:2", "command": ["run"],
                      "securityContext": {"readOnlyRootFilesystem": true},
                      "ports": [{"containerPort": 29500}]}]}})"),
                         2, kCluster);
  EXPECT_EQ(bound["spec"]["securityContext"]["runAsNonRoot"], true);
  EXPECT_EQ(Trainer(bound)["securityContext"]["readOnlyRootFilesystem"], true);
  EXPECT_TRUE(Trainer(bound).contains("ports"));
}

TEST(ContainerPod, NeedsACommandAndAPlaceInTheRound) {
  const std::string without = R"({"spec": {"containers": [{"name": "trainer", "image": "i"}]}})";
  for (const std::string& text : {std::string("{}"), without}) {
    const auto pod = BuildContainerPod(kJob, Spec(text), {.index = 0}, kRound, kCluster);
    EXPECT_EQ(pod.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(pod.status().message().find("command"), absl::string_view::npos);
  }
  EXPECT_FALSE(BuildContainerPod(kJob, Spec(), {.index = 1}, kRound, kCluster).ok());
}

TEST(RoundPods, KeepsAHostNameOfTheTemplate) {
  const auto spec = Spec(R"({"spec": {"hostname": "all", "containers": [
      {"name": "trainer", "image": "mine:2", "command": ["run"]}]}})");
  const auto pods = RoundPods::Make(kJob, spec, {}, kCluster);
  ASSERT_TRUE(pods.ok()) << pods.status();
  EXPECT_EQ((*pods->Pod({.index = 2}, kRound))["spec"]["hostname"], "all");
}

TEST(RoundPods, GivesEachWorkerThePodThatItHasAlone) {
  for (const Platform& platform : {kCluster, kLocal}) {
    for (const auto framework :
         {v1alpha1::CONTAINER_FRAMEWORK_PY_TORCH, v1alpha1::CONTAINER_FRAMEWORK_TENSOR_FLOW,
          v1alpha1::CONTAINER_FRAMEWORK_DMLC, v1alpha1::CONTAINER_FRAMEWORK_PLAIN}) {
      v1alpha1::TrainingJobSpec spec = Spec();
      spec.mutable_workload()->mutable_container()->set_framework(framework);
      const auto pods = RoundPods::Make(
          kJob, spec, {.index = 7, .config_generation = 9, .annotations = {{"of", "nobody"}}},
          platform);
      ASSERT_TRUE(pods.ok()) << pods.status();
      for (const std::int64_t index : {5, 0, 2, 0}) {  // in any order, and again
        const auto pod = pods->Pod({.index = index}, kRound);
        ASSERT_TRUE(pod.ok()) << pod.status();
        EXPECT_EQ(*pod, Pod(spec, index, platform));
        EXPECT_EQ((*pod)["metadata"]["name"], PodName("ddp", Role::kWorker, index));
        EXPECT_EQ((*pod)["metadata"]["labels"]["starling.dev/index"], std::to_string(index));
      }
      EXPECT_EQ(pods->Pod({.index = 1}, kRound).status().code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(RoundPods, ServeEveryRoundAndGeneration) {
  const auto pods = RoundPods::Make(kJob, Spec(), {}, kCluster);
  ASSERT_TRUE(pods.ok()) << pods.status();
  const Round later{.number = 8, .members = {2, 4}};
  const PodRequest request{
      .index = 4, .config_generation = 6, .annotations = {{"starling.dev/round", "8"}}};
  const auto alone = BuildContainerPod(kJob, Spec(), request, later, kCluster);
  ASSERT_TRUE(alone.ok()) << alone.status();
  ASSERT_TRUE(pods->Pod({.index = 0}, kRound).ok());
  EXPECT_EQ(*pods->Pod(request, later), *alone);
  EXPECT_EQ((*alone)["metadata"]["annotations"],
            Json({{"starling.dev/generation", "6"}, {"starling.dev/round", "8"}}));
}

Rendezvous ThreeWorkers(std::int64_t rank) {
  return {.id = "uid-3",
          .round = 3,
          .rank = rank,
          .processes = 1,
          .workers = {{"a", 1}, {"b", 2}, {"c", 3}},
          .local = false};
}

std::map<std::string, std::string> AsMap(const Variables& variables) {
  return {variables.begin(), variables.end()};
}

TEST(Rendezvous, PyTorchGetsTheArgumentsOfTorchrun) {
  auto env = AsMap(PyTorchVariables(ThreeWorkers(1)));
  EXPECT_EQ(env["PET_NNODES"], "3");
  EXPECT_EQ(env["PET_NODE_RANK"], "1");
  EXPECT_EQ(env["PET_RDZV_BACKEND"], "static");
  EXPECT_EQ(env["PET_RDZV_ENDPOINT"], "a:1");
  EXPECT_EQ(env["PET_RDZV_ID"], "uid-3");
  EXPECT_FALSE(env.contains("GLOO_SOCKET_IFNAME"));
  Rendezvous local = ThreeWorkers(1);
  local.local = true;
  EXPECT_EQ(AsMap(PyTorchVariables(local))["GLOO_SOCKET_IFNAME"], "lo");
}

TEST(Rendezvous, TensorFlowGetsItsConfig) {
  const Json config = Json::parse(AsMap(TensorFlowVariables(ThreeWorkers(2)))["TF_CONFIG"]);
  EXPECT_EQ(config, Json({{"cluster", {{"worker", {"a:1", "b:2", "c:3"}}}},
                          {"task", {{"type", "worker"}, {"index", 2}}}}));
}

TEST(Rendezvous, DmlcFindsItsTrackerOnRankZero) {
  auto env = AsMap(DmlcVariables(ThreeWorkers(2)));
  EXPECT_EQ(env["DMLC_TRACKER_URI"], "a");
  EXPECT_EQ(env["DMLC_TRACKER_PORT"], "1");
  EXPECT_EQ(env["DMLC_TASK_ID"], "2");
  EXPECT_EQ(env["DMLC_NUM_WORKER"], "3");
  EXPECT_EQ(env["DMLC_ROLE"], "worker");
}

TEST(Rendezvous, FrameworkDecidesWhichVariablesThereAre) {
  const struct {
    v1alpha1::ContainerFramework framework;
    const char* has;
    const char* lacks;
  } cases[] = {{v1alpha1::CONTAINER_FRAMEWORK_PY_TORCH, "PET_NNODES", "TF_CONFIG"},
               {v1alpha1::CONTAINER_FRAMEWORK_TENSOR_FLOW, "TF_CONFIG", "PET_NNODES"},
               {v1alpha1::CONTAINER_FRAMEWORK_DMLC, "DMLC_ROLE", "PET_NNODES"},
               {v1alpha1::CONTAINER_FRAMEWORK_PLAIN, "RANK", "PET_NNODES"}};
  for (const auto& row : cases) {
    v1alpha1::TrainingJobSpec spec = Spec();
    spec.mutable_workload()->mutable_container()->set_framework(row.framework);
    const auto env = Env(Pod(spec, 0, kCluster));
    EXPECT_TRUE(env.contains(row.has)) << row.has;
    EXPECT_TRUE(env.contains("MASTER_ADDR"));
    EXPECT_FALSE(env.contains(row.lacks)) << row.lacks;
  }
}

}  // namespace
}  // namespace starling::resources
