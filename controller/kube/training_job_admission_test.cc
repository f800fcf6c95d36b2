// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/training_job_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/clock/clock.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

using testing::HasSubstr;

class TrainingJobAdmissionTest : public testing::Test {
 protected:
  TrainingJobAdmissionTest() {
    EmbeddedOptions options;
    options.admission["TrainingJob"] = AdmitTrainingJob;
    store_ = *OpenEmbeddedKubeClient(clock_, options);
  }

  static Json Job() {
    return Json::parse(R"({
      "metadata": {"name": "digits"},
      "spec": {"workload": {"classification": {"model": {"mlp": {"hidden": [8]}}}},
               "dataset": {"train": {"synthetic": {}}}}})");
  }
  absl::StatusOr<Json> Patch(const Json& patch) {
    return store_->Patch(kTrainingJob, {"default", "digits"}, patch);
  }

  const clock::FakeClock clock_;
  std::unique_ptr<KubeClient> store_;
};

TEST_F(TrainingJobAdmissionTest, OnlyTheSchemasDefaultsAreFilledIn) {
  const auto job = store_->Create(kTrainingJob, Job());

  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(IntAt(*job, "/spec/replicaSpecs/worker/replicas"), 1);
  EXPECT_EQ(StringAt(*job, "/spec/runPolicy/cleanPodPolicy"), "Running");
  EXPECT_TRUE(At(*job, "/spec/seed").is_null()) << "a preset may set it";
}

TEST_F(TrainingJobAdmissionTest, AWrongSpecIsRefusedWithTheFieldsPath) {
  Json job = Job();
  job["spec"]["optimiser"] = Json::object();
  job["spec"]["dataset"]["globalBatchSize"] = -1;

  const auto status = store_->Create(kTrainingJob, job).status();

  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("spec.optimiser"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("spec.dataset.globalBatchSize"));
}

TEST_F(TrainingJobAdmissionTest, AJobWithoutASpecOrWithALongNameIsRefused) {
  Json job = Job();
  job.erase("spec");
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Create(kTrainingJob, job).status()));
  job = Job();
  job["metadata"]["name"] = std::string(41, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Create(kTrainingJob, job).status()));
}

TEST_F(TrainingJobAdmissionTest, ARunningJobMayBeScaledButNotRebuilt) {
  ASSERT_TRUE(store_->Create(kTrainingJob, Job()).ok());

  EXPECT_TRUE(Patch({{"spec", {{"replicaSpecs", {{"worker", {{"replicas", 3}}}}}}}}).ok());
  const auto status = Patch({{"spec", {{"seed", 7}}}}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("spec.seed"));

  EXPECT_TRUE(Patch({{"spec", {{"runPolicy", {{"suspend", true}}}}}}).ok());
  EXPECT_TRUE(Patch({{"spec", {{"seed", 7}}}}).ok()) << "while suspended anything may change";
}

TEST_F(TrainingJobAdmissionTest, ScaleStaysWithinItsBounds) {
  Json job = Job();
  job["spec"]["replicaSpecs"]["worker"] = {{"replicas", 2}, {"maxReplicas", 4}};
  ASSERT_TRUE(store_->Create(kTrainingJob, job).ok());
  auto scale = store_->GetScale(kTrainingJob, {"default", "digits"});
  ASSERT_TRUE(scale.ok());

  (*scale)["spec"]["replicas"] = 5;

  EXPECT_TRUE(absl::IsInvalidArgument(store_->UpdateScale(kTrainingJob, *scale).status()));
  (*scale)["spec"]["replicas"] = 4;
  EXPECT_TRUE(store_->UpdateScale(kTrainingJob, *scale).ok());
}

}  // namespace
}  // namespace starling::kube
