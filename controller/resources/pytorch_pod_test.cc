// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/pytorch_pod.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const JobIdentity kJob{.ns = "team", .name = "own", .uid = "0123456789abcdef"};
const Platform kLocal{
    .jobs_folder = "/home/me/starling/jobs", .image = "", .python = "/usr/lib/starling/python"};
const Platform kCluster{.jobs_folder = "", .image = "starling:1"};

constexpr char kImage[] = R"({"spec": {"containers": [{"name": "trainer", "image": "mine:2",
    "env": [{"name": "HOME", "value": "/data"}]}]}})";

v1alpha1::TrainingJobSpec Spec(const std::string& worker_template = "") {
  v1alpha1::TrainingJobSpec spec;
  v1alpha1::PyTorch& pytorch = *spec.mutable_workload()->mutable_pytorch();
  pytorch.set_script("/work/train.py");
  pytorch.add_args("--name=$(POD_NAME)");
  pytorch.set_python("python3");
  if (!worker_template.empty()) {
    spec.mutable_replica_specs()->mutable_worker()->set_template_(worker_template);
  }
  return spec;
}

Json Pod(const v1alpha1::TrainingJobSpec& spec, const Platform& platform) {
  auto pod = BuildPytorchPod(kJob, spec, {.index = 2, .config_generation = 7}, platform);
  EXPECT_TRUE(pod.ok()) << pod.status();
  return pod.ok() ? *pod : Json();
}

const Json& Trainer(const Json& pod) { return pod["spec"]["containers"][0]; }

std::vector<std::string> Program(const Json& pod) {
  const auto command = Trainer(pod)["command"].get<std::vector<std::string>>();
  return {std::find(command.begin(), command.end(), "--") + 1, command.end()};
}

std::vector<std::string> Script(const Json& pod) {
  const auto program = Program(pod);
  return {std::find(program.begin(), program.end(), "--") + 1, program.end()};
}

std::map<std::string, std::string> Env(const Json& pod) {
  std::map<std::string, std::string> env;
  for (const Json& entry : Trainer(pod)["env"]) env[entry["name"]] = entry.value("value", "");
  return env;
}

TEST(PytorchPod, SupervisorRunsTheProgramWithItsArgumentsAsTheyStand) {
  const Json pod = Pod(Spec(), kLocal);
  EXPECT_EQ(Trainer(pod)["command"][0], "starling-supervisor");
  // A kubelet makes $$ a dollar sign again.
  EXPECT_THAT(Script(pod), ElementsAre("/work/train.py", "--name=$$(POD_NAME)"));
}

TEST(PytorchPod, ScriptMayBeAFilesUri) {
  v1alpha1::TrainingJobSpec spec = Spec();
  spec.mutable_workload()->mutable_pytorch()->set_script("file:///my%20work/train.py");
  EXPECT_EQ(Script(Pod(spec, kLocal))[0], "/my work/train.py");
}

TEST(PytorchPod, LauncherGetsTheFlagsOfOurOwnWorker) {
  const auto ours = BuildPod(kJob, Spec(), {.index = 2, .config_generation = 7}, kLocal);
  ASSERT_TRUE(ours.ok()) << ours.status();
  const std::vector<std::string> expected = Program(*ours), program = Program(Pod(Spec(), kLocal));
  ASSERT_EQ(expected[0], "starling-worker");
  ASSERT_GT(program.size(), expected.size() + 2);
  EXPECT_EQ(program[0], "python3");
  EXPECT_EQ(program[1], "-m");
  EXPECT_EQ(program[2], "starling.embed.launch");
  EXPECT_TRUE(std::equal(expected.begin() + 1, expected.end(), program.begin() + 3));
  EXPECT_EQ(program[expected.size() + 2], "--");
}

TEST(PytorchPod, OnOneMachineThePackageLiesBesideOurPrograms) {
  const Json pod = Pod(Spec(), kLocal);
  EXPECT_EQ(Env(pod)["PYTHONPATH"], "/usr/lib/starling/python");
  EXPECT_FALSE(pod["spec"].contains("initContainers"));
  EXPECT_FALSE(Env(pod).contains("HOME"));
}

TEST(PytorchPod, SetsOfAReproducibleJobHaveOneOrder) {
  v1alpha1::TrainingJobSpec spec = Spec();
  EXPECT_FALSE(Env(Pod(spec, kLocal)).contains("PYTHONHASHSEED"));
  spec.set_reproducible(true);
  EXPECT_EQ(Env(Pod(spec, kLocal))["PYTHONHASHSEED"], "0");
}

TEST(PytorchPod, WorkersOfOneMachineComputeInOneThreadEachUnlessTheTemplateSaysOtherwise) {
  EXPECT_EQ(Env(Pod(Spec(), kLocal))["OMP_NUM_THREADS"], "1");
  EXPECT_FALSE(Env(Pod(Spec(kImage), kCluster)).contains("OMP_NUM_THREADS"));
  const v1alpha1::TrainingJobSpec more = Spec(R"({"spec": {"containers": [
      {"name": "trainer", "env": [{"name": "OMP_NUM_THREADS", "value": "8"}]}]}})");
  EXPECT_EQ(Env(Pod(more, kLocal))["OMP_NUM_THREADS"], "8");
}

TEST(PytorchPod, InAClusterAnInitContainerBringsSupervisorAndPackageIntoTheUsersImage) {
  const Json pod = Pod(Spec(kImage), kCluster);
  EXPECT_EQ(Trainer(pod)["image"], "mine:2");
  EXPECT_EQ(Trainer(pod)["command"][0], "/run/starling/starling-supervisor");
  EXPECT_EQ(Env(pod)["PYTHONPATH"], "/run/starling/python");
  const Json& init = pod["spec"]["initContainers"][0];
  EXPECT_EQ(init["image"], "starling:1");
  EXPECT_EQ(init["command"],
            Json({"starling-supervisor", "--install", "/run/starling/starling-supervisor",
                  "--package", "/run/starling/python"}));
}

TEST(PytorchPod, InAClusterItIsAMemberButForWhatOnlyOurImageHas) {
  const Json pod = Pod(Spec(kImage), kCluster);
  for (const char* field : {"startupProbe", "workingDir"}) {
    EXPECT_FALSE(Trainer(pod).contains(field)) << field;
  }
  EXPECT_FALSE(Trainer(pod)["securityContext"].contains("readOnlyRootFilesystem"));
  EXPECT_EQ(pod["spec"]["securityContext"]["runAsNonRoot"], true);
  const auto ours = BuildPod(kJob, Spec(), {.index = 2, .config_generation = 7}, kCluster);
  ASSERT_TRUE(ours.ok()) << ours.status();
  EXPECT_EQ(pod["spec"]["volumes"], (*ours)["spec"]["volumes"]) << "its credentials, its disk";
  EXPECT_EQ(Trainer(pod)["ports"], Trainer(*ours)["ports"]);
  EXPECT_EQ(pod["metadata"], (*ours)["metadata"]);
}

TEST(PytorchPod, TemplatesVariablesWin) {
  EXPECT_EQ(Env(Pod(Spec(kImage), kCluster))["HOME"], "/data");
}

TEST(PytorchPod, WithoutAnImageOfTheUsersThereIsNoneInACluster) {
  const auto pod = BuildPytorchPod(kJob, Spec(), {.index = 0}, kCluster);
  EXPECT_EQ(pod.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(pod.status().message()),
              HasSubstr("spec.replicaSpecs.worker.template: needs a container called \"trainer\""));
}

}  // namespace
}  // namespace starling::resources
