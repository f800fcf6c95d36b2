// SPDX-License-Identifier: Apache-2.0
#include "api/spec/resolve.h"

#include <string>
#include <vector>

#include "api/spec/mutability.h"
#include "api/spec/test_job.h"
#include "api/spec/writer.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace starling::spec {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;

v1alpha1::TrainingJobSpec Given(const std::vector<std::string>& settings) {
  v1alpha1::TrainingJob job;
  const FieldErrors errors = ReadJob(DigitsJobWith(settings), job);
  EXPECT_EQ(Format(errors), "");
  return job.spec();
}

v1alpha1::TrainingJobSpec Resolved(const std::vector<std::string>& settings) {
  return Resolve(Given(settings));
}

TEST(Resolve, FillsEveryDefaultThatTheFileLeavesOut) {
  const auto spec = Resolved({});
  EXPECT_EQ(spec.seed(), 1);
  EXPECT_TRUE(spec.has_reproducible());
  EXPECT_EQ(spec.dataset().global_batch_size(), 64);
  EXPECT_TRUE(spec.dataset().normalize());
  EXPECT_EQ(spec.dataset().train().csv().header(), v1alpha1::CSV_HEADER_AUTO);
  EXPECT_EQ(spec.dataset().train().csv().delimiter(), ",");
  EXPECT_DOUBLE_EQ(spec.optimizer().sgd().learning_rate(), 0.05);
  EXPECT_TRUE(spec.optimizer().schedule().has_constant());
  EXPECT_EQ(spec.exchange().all_reduce().algorithm(), v1alpha1::ALL_REDUCE_ALGORITHM_AUTO);
  EXPECT_EQ(spec.replica_specs().worker().replicas(), 2);
  EXPECT_EQ(spec.replica_specs().worker().min_replicas(), 1);
  EXPECT_TRUE(spec.replica_specs().has_coordinator());
  EXPECT_EQ(spec.checkpoint().interval().seconds(), 30);
  EXPECT_EQ(spec.data_plane().encryption(), v1alpha1::DATA_PLANE_ENCRYPTION_NONE);
  EXPECT_EQ(spec.run_policy().backoff_limit(), 6);
  EXPECT_EQ(spec.stop().epochs(), 10);
  EXPECT_FALSE(spec.stop().has_target());
  EXPECT_FALSE(spec.replica_specs().worker().has_template_());
}

TEST(Resolve, FillsListsThatHaveADefault) {
  auto given = Given({});
  given.mutable_dataset()->mutable_train()->mutable_synthetic();
  EXPECT_THAT(Resolve(given).dataset().train().synthetic().shape(), ElementsAre(16));
  given.mutable_dataset()->mutable_train()->mutable_synthetic()->add_shape(3);
  EXPECT_THAT(Resolve(given).dataset().train().synthetic().shape(), ElementsAre(3));
}

TEST(Resolve, DefaultIsBelowPresetIsBelowFile) {
  EXPECT_EQ(Resolved({}).exchange().all_reduce().algorithm(), v1alpha1::ALL_REDUCE_ALGORITHM_AUTO);
  const auto preset = Resolved({"spec.preset=horovod"});
  EXPECT_EQ(preset.exchange().all_reduce().bucket_bytes(), 64 << 20);
  EXPECT_EQ(preset.exchange().all_reduce().algorithm(), v1alpha1::ALL_REDUCE_ALGORITHM_RING);
  const auto file = Resolved({"spec.preset=horovod", "spec.exchange.allReduce.bucketBytes=2048"});
  EXPECT_EQ(file.exchange().all_reduce().bucket_bytes(), 2048);
  EXPECT_EQ(file.exchange().all_reduce().algorithm(), v1alpha1::ALL_REDUCE_ALGORITHM_RING);
  EXPECT_EQ(Resolved({"spec.preset=pytorchDdp"}).exchange().all_reduce().bucket_bytes(), 25 << 20);
}

TEST(Resolve, AnotherMemberInTheFileReplacesThePresetsMember) {
  const auto spec = Resolved({"spec.preset=horovod", "spec.exchange.none={}"});
  EXPECT_TRUE(spec.exchange().has_none());
}

TEST(Resolve, GivenFieldsSurviveAndResolvingTwiceChangesNothing) {
  const auto given = Given({"spec.preset=horovod", "spec.optimizer.adam.beta1=0.5", "spec.seed=0",
                            "spec.checkpoint.interval=1s", "spec.dataset.normalize=false",
                            R"(spec.replicaSpecs.worker.template={"spec":{"nodeName":"a"}})"});
  const auto once = Resolve(given);
  EXPECT_EQ(once.seed(), 0);
  EXPECT_FALSE(once.dataset().normalize());
  EXPECT_DOUBLE_EQ(once.optimizer().adam().beta1(), 0.5);
  EXPECT_DOUBLE_EQ(once.optimizer().adam().beta2(), 0.999);
  EXPECT_EQ(once.checkpoint().interval().seconds(), 1);
  EXPECT_EQ(once.replica_specs().worker().template_(), R"({"spec":{"nodeName":"a"}})");
  EXPECT_TRUE(MessageDifferencer::Equals(once, Resolve(once)));
}

TEST(Resolve, AJobWithServersHasOneForEachCopyUnlessItSaysHowMany) {
  EXPECT_FALSE(Resolved({}).replica_specs().has_parameter_server());
  const auto one = Resolved({"spec.exchange.parameterServer={}"});
  EXPECT_EQ(one.replica_specs().parameter_server().replicas(), 1);
  EXPECT_EQ(one.replica_specs().parameter_server().min_replicas(), 1);
  EXPECT_TRUE(one.exchange().parameter_server().consistency().has_bulk_synchronous());
  EXPECT_EQ(one.exchange().parameter_server().shards(), 16);
  EXPECT_FALSE(one.exchange().parameter_server().has_samples_per_push());
  EXPECT_TRUE(one.update().has_gradient());
  const auto two = Resolved({"spec.exchange.parameterServer.replication=2"});
  EXPECT_EQ(two.replica_specs().parameter_server().replicas(), 2);
  const auto three = Resolved({"spec.exchange.parameterServer.replication=2",
                               "spec.replicaSpecs.parameterServer.replicas=3"});
  EXPECT_EQ(three.replica_specs().parameter_server().replicas(), 3);
  EXPECT_TRUE(MessageDifferencer::Equals(two, Resolve(two)));
}

TEST(Resolve, StepsInTheFileLeaveNoDefaultForEpochs) {
  const auto steps = Resolved({"spec.stop.steps=100"});
  EXPECT_FALSE(steps.stop().has_epochs());
  EXPECT_EQ(steps.stop().steps(), 100);
  const auto both = Resolved({"spec.stop.steps=100", "spec.stop.epochs=2"});
  EXPECT_EQ(both.stop().epochs(), 2);
}

TEST(Resolve, APresetsAlgorithmGivesWayToReproducibleSums) {
  const auto spec = Resolved({"spec.preset=horovod", "spec.reproducible=true"});
  EXPECT_EQ(spec.exchange().all_reduce().algorithm(), v1alpha1::ALL_REDUCE_ALGORITHM_AUTO);
  EXPECT_EQ(spec.exchange().all_reduce().bucket_bytes(), 64 << 20);
}

TEST(Resolve, AFrozenSpecReadsBackAsItself) {
  const auto spec = Resolved({"spec.preset=horovod"});
  const auto read = ReadResolvedSpec(WriteMessage(spec).dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(MessageDifferencer::Equals(spec, *read));
  EXPECT_FALSE(ReadResolvedSpec("{\"sed\": 1}").ok());
  EXPECT_FALSE(ReadResolvedSpec("{").ok());
}

TEST(Presets, AllAreReadableAndSorted) {
  EXPECT_THAT(PresetNames(), ElementsAre("horovod", "pytorchDdp"));
  for (const std::string& name : PresetNames()) {
    EXPECT_TRUE(PresetSpec(name).has_exchange()) << name;
  }
  EXPECT_FALSE(PresetSpec("nobody").has_exchange());
}

std::string ChangeErrors(const std::vector<std::string>& settings, bool suspended = false) {
  std::string paths;
  for (const FieldError& error : CheckChange(Resolved({}), Resolved(settings), suspended)) {
    paths += error.path + " ";
  }
  return paths;
}

TEST(Mutability, LetsOnlyTheMarkedFieldsChangeWhileRunning) {
  EXPECT_EQ(ChangeErrors({}), "");
  EXPECT_EQ(ChangeErrors({"spec.replicaSpecs.worker.replicas=3", "spec.stop.epochs=30",
                          "spec.replicaSpecs.worker.minReplicas=2", "spec.runPolicy.suspend=true",
                          "spec.replicaSpecs.worker.maxReplicas=9", "spec.checkpoint.keep=9",
                          "spec.checkpoint.interval=1s", "spec.stop.target.atLeast=0.5",
                          "spec.stop.target.metric=validation/accuracy",
                          "spec.runPolicy.activeDeadlineSeconds=9",
                          "spec.runPolicy.ttlSecondsAfterFinished=9"}),
            "");
  EXPECT_EQ(ChangeErrors({"spec.seed=2"}), "spec.seed ");
  EXPECT_EQ(ChangeErrors({"spec.checkpoint.uri=/x", "spec.runPolicy.backoffLimit=1"}),
            "spec.checkpoint.uri spec.runPolicy.backoffLimit ");
  EXPECT_EQ(ChangeErrors({"spec.optimizer.adam={}"}), "spec.optimizer.sgd spec.optimizer.adam ");
  EXPECT_EQ(ChangeErrors({"spec.workload.classification.model.mlp.hidden[2]=3"}),
            "spec.workload.classification.model.mlp.hidden ");
}

TEST(Mutability, ServersMayBeScaledThoughTheFileDidNotNameThem) {
  const auto change = [](const std::string& setting) {
    const std::string servers = "spec.exchange.parameterServer.replication=2";
    std::string paths;
    for (const FieldError& error :
         CheckChange(Resolved({servers}), Resolved({servers, setting}), /*suspended=*/false)) {
      paths += error.path + " ";
    }
    return paths;
  };
  EXPECT_EQ(change("spec.replicaSpecs.parameterServer.replicas=3"), "");
  EXPECT_EQ(change("spec.replicaSpecs.parameterServer.maxReplicas=3"), "");
  EXPECT_EQ(change("spec.replicaSpecs.parameterServer.restartPolicy=Never"),
            "spec.replicaSpecs.parameterServer.restartPolicy ");
  EXPECT_EQ(change("spec.exchange.parameterServer.replication=3"),
            "spec.exchange.parameterServer.replication ");
}

TEST(Mutability, LetsEverythingChangeWhileSuspended) {
  EXPECT_EQ(ChangeErrors({"spec.seed=2", "spec.optimizer.adam={}"}, /*suspended=*/true), "");
}

TEST(Mutability, WritingADefaultDownIsNoChange) {
  EXPECT_EQ(ChangeErrors({"spec.seed=1", "spec.optimizer.sgd.momentum=0"}), "");
}

TEST(Resolve, FeaturesOfLibsvmDataGetNoDefaultThatWouldHaveNoEffect) {
  EXPECT_TRUE(Resolved({}).dataset().normalize());
  const v1alpha1::TrainingJobSpec sparse =
      Resolved({"spec.workload.sparseLogisticRegression={}", "spec.exchange.parameterServer={}",
                "spec.dataset.train.libsvm.uri=a", "spec.dataset.validation=null"});
  EXPECT_FALSE(sparse.dataset().has_normalize());
}

TEST(Presets, EachResolvesToAValidJobOfItsOwn) {
  const nlohmann::json plain = WriteMessage(Resolved({}));
  ASSERT_FALSE(PresetNames().empty());
  for (const std::string& name : PresetNames()) {
    EXPECT_EQ(ErrorsOf(DigitsJobWith({"spec.preset=" + name})), "") << name;
    nlohmann::json resolved = WriteMessage(Resolved({"spec.preset=" + name}));
    EXPECT_EQ(resolved["preset"], name);
    resolved.erase("preset");
    EXPECT_NE(resolved, plain) << name << " says nothing";
  }
}

}  // namespace
}  // namespace starling::spec
