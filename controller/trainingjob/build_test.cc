// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/build.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::trainingjob {
namespace {

const JobIdentity kJob{.ns = "team", .name = "ddp", .uid = "0123456789abcdef"};
const resources::Platform kCluster{.jobs_folder = "", .image = "starling:1"};

v1alpha1::TrainingJobSpec OwnContainer() {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_workload()->mutable_container()->set_framework(
      v1alpha1::CONTAINER_FRAMEWORK_PY_TORCH);
  spec.mutable_replica_specs()->mutable_worker()->set_template_(R"({"spec": {"containers": [
      {"name": "trainer", "image": "mine:2", "command": ["train"]}]}})");
  return spec;
}

// Pods in an order in which each differs from the one before in its index, or in something else
// too.
std::vector<CreatePod> Creates() {
  const World first{.round = 1, .members = {0, 1, 2}, .wanted = 3};
  const World second{.round = 2, .members = {0, 1}, .wanted = 2};
  CreatePod create{.role = Role::kWorker, .index = 0, .config_generation = 1, .world = first};
  std::vector<CreatePod> creates = {create};
  const auto add = [&](std::int64_t index) {
    create.index = index;
    creates.push_back(create);
  };
  add(1);
  create.avoid = {"node-1"};
  add(2);
  create.memory = "96Mi";
  add(2);
  create.config_generation = 2;
  add(0);
  create.world = second;
  add(1);
  add(0);
  create.role = Role::kCoordinator;
  add(0);
  return creates;
}

TEST(PodBuilder, BuildsEachPodAsIfItWereTheOnlyOne) {
  for (const bool own : {true, false}) {
    const v1alpha1::TrainingJobSpec spec = own ? OwnContainer() : v1alpha1::TrainingJobSpec();
    PodBuilder builder(kJob, kCluster);
    for (const CreatePod& create : Creates()) {
      const auto pod = builder.Build(spec, create);
      ASSERT_TRUE(pod.ok()) << pod.status();
      EXPECT_EQ(*pod, *BuildJobPod(kJob, spec, create, kCluster));
    }
  }
}

TEST(PodBuilder, GoesOnWithWhatAnotherOneMade) {
  const v1alpha1::TrainingJobSpec spec = OwnContainer();
  CreatePod sample{.role = Role::kWorker, .index = 0, .config_generation = 0};
  sample.world = {.round = 1, .members = {0}, .wanted = 1};
  PodBuilder other(kJob, kCluster);
  EXPECT_FALSE(other.Made().has_value());
  ASSERT_TRUE(other.Build(spec, sample).ok());
  PodBuilder builder(kJob, kCluster);
  builder.Use(1, *other.Made());
  for (const CreatePod& create : Creates()) {
    const auto pod = builder.Build(spec, create);
    ASSERT_TRUE(pod.ok()) << pod.status();
    EXPECT_EQ(*pod, *BuildJobPod(kJob, spec, create, kCluster));
  }
  // It is not made again: of a spec without a command there is none to be made.
  v1alpha1::TrainingJobSpec empty = spec;
  empty.mutable_replica_specs()->mutable_worker()->clear_template_();
  builder.Use(1, *other.Made());
  EXPECT_TRUE(builder.Build(empty, Creates().front()).ok());
  CreatePod next = Creates().front();
  next.config_generation = 2;
  EXPECT_FALSE(builder.Build(empty, next).ok());
}

TEST(PodBuilder, RefusesAWorkerOfAnotherRoundAndGoesOn) {
  PodBuilder builder(kJob, kCluster);
  CreatePod create{.role = Role::kWorker, .index = 7, .config_generation = 1};
  create.world = {.round = 1, .members = {0}, .wanted = 1};
  EXPECT_EQ(builder.Build(OwnContainer(), create).status().code(),
            absl::StatusCode::kInvalidArgument);
  create.index = 0;
  EXPECT_TRUE(builder.Build(OwnContainer(), create).ok());
}

// Its workers are of the user's image, which this one does not name; its coordinator is of ours.
TEST(BuildJobPod, OfAPytorchProgramOnlyWorkersRunIt) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_workload()->mutable_pytorch();
  CreatePod create{.role = Role::kWorker, .index = 0, .config_generation = 1};
  EXPECT_TRUE(absl::IsInvalidArgument(BuildJobPod(kJob, spec, create, kCluster).status()));
  create.role = Role::kCoordinator;
  EXPECT_TRUE(BuildJobPod(kJob, spec, create, kCluster).ok());
}

}  // namespace
}  // namespace starling::trainingjob
