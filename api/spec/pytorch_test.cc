// SPDX-License-Identifier: Apache-2.0
// Jobs that run a PyTorch program of the user's own.
#include <string>

#include "api/spec/job_file.h"
#include "api/spec/techniques.h"
#include "api/spec/test_job.h"
#include "api/spec/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json PytorchJob() {
  return Json::parse(R"({
    "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "own"},
    "spec": {"workload": {"pytorch": {"script": "train.py"}}}})");
}

TEST(PytorchJob, NeedsNoDataAndHasNoDefaultsOfWhatItsProgramSays) {
  CheckedJob checked;
  EXPECT_EQ(Format(CheckJob(PytorchJob(), checked)), "");
  EXPECT_EQ(checked.resolved.workload().pytorch().python(), "python3");
  EXPECT_FALSE(checked.resolved.has_dataset());
  EXPECT_FALSE(checked.resolved.has_optimizer());
  EXPECT_FALSE(checked.resolved.has_stop());
  EXPECT_FALSE(checked.resolved.has_update());
  EXPECT_TRUE(checked.resolved.exchange().has_all_reduce());
  EXPECT_EQ(checked.resolved.checkpoint().keep(), 3);
  EXPECT_EQ(checked.resolved.replica_specs().worker().min_replicas(), 1);
}

TEST(PytorchJob, MaySayHowLargeABatchIsAndAskForAnAuditButNotWhatTheDataAre) {
  Json job = PytorchJob();
  job["spec"]["dataset"] = {{"auditUse", true}};
  CheckedJob checked;
  EXPECT_EQ(Format(CheckJob(job, checked)), "");
  EXPECT_TRUE(checked.resolved.dataset().audit_use());
  EXPECT_FALSE(checked.resolved.dataset().has_global_batch_size());
  for (const auto& [field, value] :
       {std::pair<const char*, Json>{"normalize", false}, {"train", {{"csv", {{"uri", "a"}}}}}}) {
    Json wrong = job;
    wrong["spec"]["dataset"][field] = value;
    EXPECT_THAT(ErrorsOf(wrong), HasSubstr(std::string("spec.dataset.") + field +
                                           ": does not go with spec.workload.pytorch"));
  }
}

TEST(PytorchJob, ItsEndMayBeSaidInTheFileElseItIsTheProgramsWord) {
  Json job = PytorchJob();
  job["spec"]["stop"] = {{"steps", 3}};
  CheckedJob checked;
  EXPECT_EQ(Format(CheckJob(job, checked)), "");
  EXPECT_EQ(checked.resolved.stop().steps(), 3);
  EXPECT_FALSE(checked.resolved.stop().has_epochs());
}

TEST(PytorchJob, MayBeReproducibleOnAsManyWorkersAsItsBatchHasGroups) {
  Json job = PytorchJob();
  job["spec"]["reproducible"] = true;
  job["spec"]["replicaSpecs"]["worker"]["maxReplicas"] = 16;
  EXPECT_EQ(ErrorsOf(job), "");
  job["spec"]["dataset"]["globalBatchSize"] = 8;
  EXPECT_THAT(ErrorsOf(job), HasSubstr("maxReplicas: must be at most 8 with spec.reproducible"));
  job["spec"].erase("dataset");
  job["spec"]["replicaSpecs"]["worker"]["maxReplicas"] = 17;
  EXPECT_THAT(ErrorsOf(job), HasSubstr("maxReplicas: must be at most 16 with spec.reproducible"));
}

TEST(PytorchJob, WhatItsProgramSaysItselfIsRefusedByName) {
  Json job = PytorchJob();
  job["spec"]["optimizer"] = {{"sgd", Json::object()}};
  job["spec"]["stop"] = {{"target", {{"metric", "validation/loss"}, {"atMost", 1}}}};
  job["spec"]["exchange"] = {{"parameterServer", Json::object()}};
  EXPECT_THAT(ErrorsOf(job),
              AllOf(HasSubstr("spec.optimizer: does not go with spec.workload.pytorch"),
                    HasSubstr("spec.stop.target: does not go with"),
                    HasSubstr("spec.exchange.parameterServer: does not go with")));
}

TEST(PytorchJob, HasAScriptAndAnInterpreter) {
  Json job = PytorchJob();
  job["spec"]["workload"]["pytorch"] = {{"python", ""}};
  EXPECT_THAT(ErrorsOf(job),
              AllOf(HasSubstr("spec.workload.pytorch.script: is required and missing"),
                    HasSubstr("spec.workload.pytorch.python: must name a program")));
}

TEST(PytorchJob, OtherJobsStillNeedDataToLearnFrom) {
  Json job = DigitsJob();
  job["spec"]["dataset"].erase("train");
  EXPECT_THAT(ErrorsOf(job), HasSubstr("spec.dataset.train: is required and missing"));
}

}  // namespace
}  // namespace starling::spec
