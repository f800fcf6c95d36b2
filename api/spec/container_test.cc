// SPDX-License-Identifier: Apache-2.0
// Jobs that bring their own container, and the run policy of a cluster.
#include <string>

#include "api/spec/job_file.h"
#include "api/spec/mutability.h"
#include "api/spec/test_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json ContainerJob() {
  return Json::parse(R"({
    "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "own"},
    "spec": {"workload": {"container": {}}, "replicaSpecs": {"worker": {"template": {"spec": {
      "containers": [{"name": "trainer", "image": "mine", "command": ["train"]}]}}}}}})");
}

TEST(ContainerJob, NeedsNoDataAndHasNoneOfOurOwnTrainingsDefaults) {
  CheckedJob checked;
  EXPECT_EQ(Format(CheckJob(ContainerJob(), checked)), "");
  EXPECT_EQ(checked.resolved.workload().container().framework(),
            v1alpha1::CONTAINER_FRAMEWORK_PY_TORCH);
  EXPECT_FALSE(checked.resolved.has_optimizer());
  EXPECT_FALSE(checked.resolved.has_exchange());
  EXPECT_FALSE(checked.resolved.has_stop());
  EXPECT_EQ(checked.resolved.run_policy().backoff_limit(), 6);
}

TEST(ContainerJob, OtherJobsStillNeedTheirData) {
  Json job = DigitsJob();
  job["spec"].erase("dataset");
  EXPECT_EQ(ErrorsOf(job), "spec.dataset: is required and missing");
}

TEST(ContainerJob, WhatHasNoMeaningForItIsRefusedByName) {
  Json job = ContainerJob();
  job["spec"]["optimizer"] = {{"sgd", Json::object()}};
  job["spec"]["dataset"] = DigitsJob()["spec"]["dataset"];
  job["spec"]["replicaSpecs"]["coordinator"] = {{"template", Json::object()}, {"standby", true}};
  job["spec"]["export"] = {{"tensorboard", {{"uri", "/logs"}}}};
  job["spec"]["dataPlane"] = {{"encryption", "Tls"}};
  EXPECT_THAT(
      ErrorsOf(job),
      AllOf(HasSubstr("spec.optimizer: does not go with spec.workload.container"),
            HasSubstr("spec.dataset: does not go with"), HasSubstr("spec.export: does not go with"),
            HasSubstr("spec.dataPlane: does not go with"),
            HasSubstr("spec.replicaSpecs.coordinator.template: does not go with"),
            HasSubstr("spec.replicaSpecs.coordinator.standby: does not go with")));
}

TEST(ContainerJob, APresetIsTheOneMistakeWhateverItSets) {
  Json job = ContainerJob();
  job["spec"]["preset"] = "horovod";
  EXPECT_THAT(ErrorsOf(job), HasSubstr("spec.preset: does not go with"));
  EXPECT_EQ(ErrorsOf(job).find("spec.exchange"), std::string::npos);
}

TEST(ContainerJob, ItsImageStandsInTheWorkersTemplate) {
  Json job = ContainerJob();
  job["spec"]["replicaSpecs"]["worker"].erase("template");
  EXPECT_THAT(ErrorsOf(job), HasSubstr("needs a container called \"trainer\""));
}

TEST(RunPolicy, SuccessPolicyIsForContainersOnly) {
  EXPECT_THAT(ErrorsOf(DigitsJobWith({"spec.runPolicy.successPolicy=AllWorkers"})),
              HasSubstr("spec.runPolicy.successPolicy: needs spec.workload.container"));
  Json job = ContainerJob();
  job["spec"]["runPolicy"] = {{"successPolicy", "FirstWorker"}};
  EXPECT_EQ(ErrorsOf(job), "");
}

TEST(RunPolicy, AGangIsNotLargerThanTheJobMayBe) {
  EXPECT_THAT(ErrorsOf(DigitsJobWith({"spec.runPolicy.schedulingPolicy.minAvailable=9"})),
              HasSubstr("minAvailable: must be at most maxReplicas of the workers (8), not 9"));
  EXPECT_EQ(ErrorsOf(DigitsJobWith({"spec.runPolicy.schedulingPolicy.minAvailable=8"})), "");
}

TEST(RunPolicy, ManagedByNeverChangesNotEvenWhileSuspended) {
  v1alpha1::TrainingJobSpec before, after;
  after.mutable_run_policy()->set_managed_by("a.b/c");
  after.set_seed(7);
  for (const bool suspended : {true, false}) {
    EXPECT_THAT(Format(CheckChange(before, after, suspended)),
                HasSubstr("spec.runPolicy.managedBy: never changes"));
  }
  EXPECT_EQ(CheckChange(before, after, true).size(), 1U);
  EXPECT_EQ(CheckChange(before, after, false).size(), 2U);
  EXPECT_TRUE(CheckChange(after, after, false).empty());
}

TEST(OnOutOfMemory, NeedsAMaximumThatIsAQuantity) {
  const std::string field = "spec.replicaSpecs.worker.onOutOfMemory";
  EXPECT_THAT(ErrorsOf(DigitsJobWith({field + ".factor=2"})),
              HasSubstr(field + ".maximum: is required"));
  EXPECT_THAT(ErrorsOf(DigitsJobWith({field + ".maximum=lots"})), HasSubstr("quantity"));
  EXPECT_THAT(ErrorsOf(DigitsJobWith({field + ".maximum=64Gi", field + ".factor=1"})),
              HasSubstr("must be more than 1"));
  EXPECT_EQ(ErrorsOf(DigitsJobWith({field + ".maximum=64Gi"})), "");
}

}  // namespace
}  // namespace starling::spec
