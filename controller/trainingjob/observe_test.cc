// SPDX-License-Identifier: Apache-2.0
// Pods and nodes as a real cluster shows them.
#include "controller/trainingjob/observe.h"

#include <nlohmann/json.hpp>

#include "controller/kube/message_json.h"
#include "controller/trainingjob/build.h"
#include "controller/trainingjob/durability.h"
#include "controller/trainingjob/reasons.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::trainingjob {
namespace {

const JobIdentity kIdentity{"default", "digits", "uid-of-the-job"};

Json Pod(const Json& status) {
  return {
      {"metadata",
       {{"name", "digits-worker-1"},
        {"uid", "u1"},
        {"creationTimestamp", "2026-11-21T10:00:00Z"},
        {"labels", {{"starling.dev/role", "worker"}, {"starling.dev/index", "1"}}},
        {"ownerReferences",
         Json::array({{{"uid", "uid-of-the-job"}, {"controller", true}, {"name", "digits"}}})}}},
      {"spec",
       {{"nodeName", "node2"},
        {"containers",
         Json::array({{{"name", "trainer"}, {"resources", {{"limits", {{"memory", "64Mi"}}}}}}})}}},
      {"status", status}};
}

std::optional<ObservedPod> ReadIt(const Json& pod) {
  return ReadPod(kIdentity, kube::FromJson<kubernetes::Pod>(pod));
}

ObservedPod Seen(const Json& status) {
  const auto pod = ReadIt(Pod(status));
  EXPECT_TRUE(pod.has_value());
  return pod.value_or(ObservedPod());
}

Json Container(const Json& state) { return Json::array({{{"name", "trainer"}, {"state", state}}}); }

TEST(ReadJob, ATraceIsWhatTheAnnotationSaysIfItIsOne) {
  Json job = {{"metadata", {{"name", "digits"}, {"uid", "u"}, {"annotations", Json::object()}}},
              {"spec", Json::object()}};
  JobObjects objects;
  objects.job = &job;
  Json& annotation = job["metadata"]["annotations"]["starling.dev/traceparent"];
  annotation = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  EXPECT_EQ(Read(objects, {}).observed.job.traceparent, annotation);
  annotation = "$(POD_IP)";
  EXPECT_EQ(Read(objects, {}).observed.job.traceparent, "");
}

TEST(ReadJob, SpecOfAGenerationIsReadOnceAndTheStatusEachTime) {
  Json job = {{"metadata", {{"name", "digits"}, {"uid", "u"}, {"generation", 1}}},
              {"spec", {{"seed", 1}}},
              {"status", {{"state", "Running"}}}};
  JobObjects objects;
  objects.job = &job;
  const Reading first = Read(objects, {});
  EXPECT_EQ(first.observed.spec.seed(), 1);

  objects.spec = first.spec;
  job["status"]["state"] = "Succeeded";
  const Reading second = Read(objects, {});
  EXPECT_EQ(second.spec, first.spec);
  EXPECT_EQ(second.observed.spec.SerializeAsString(), first.observed.spec.SerializeAsString());
  EXPECT_EQ(second.observed.spec_error, first.observed.spec_error);
  EXPECT_EQ(second.observed.status.state(), "Succeeded");

  job["spec"]["seed"] = 2;
  for (const auto& [field, value] : {std::pair<const char*, Json>("generation", 2), {"uid", "v"}}) {
    Json other = job;
    other["metadata"][field] = value;
    objects.job = &other;
    const Reading third = Read(objects, {});
    EXPECT_NE(third.spec, first.spec) << field;
    EXPECT_EQ(third.observed.spec.seed(), 2) << field;
  }
}

TEST(ReadJob, StatusThatCannotBeReadIsAnErrorInEveryPass) {
  Json job = {{"metadata", {{"name", "digits"}, {"uid", "u"}, {"generation", 1}}},
              {"spec", Json::object()}};
  JobObjects objects;
  objects.job = &job;
  objects.spec = Read(objects, {}).spec;
  job["status"] = 7;
  const std::string error = Read(objects, {}).observed.spec_error;
  EXPECT_NE(error.find("status"), std::string::npos) << error;
}

TEST(ReadPod, SaysWhereItIsAndWhatItMayUse) {
  const ObservedPod pod = Seen({{"phase", "Running"}, {"startTime", "2026-11-21T10:00:03Z"}});
  EXPECT_EQ(pod.node, "node2");
  EXPECT_EQ(pod.memory, 64LL << 20);
  EXPECT_EQ(pod.started - pod.created, absl::Seconds(3));
  EXPECT_FALSE(pod.problem.has_value());
}

TEST(ReadPod, PodWithoutAPlaceSaysSinceWhenAndWhy) {
  const ObservedPod pod =
      Seen({{"phase", "Pending"},
            {"conditions", Json::array({{{"type", "PodScheduled"},
                                         {"status", "False"},
                                         {"reason", "Unschedulable"},
                                         {"message", "0/2 nodes are available"},
                                         {"lastTransitionTime", "2026-11-21T10:00:01Z"}}})}});
  ASSERT_TRUE(pod.problem.has_value());
  EXPECT_EQ(pod.problem->reason, kUnschedulable);
  EXPECT_EQ(pod.problem->message, "0/2 nodes are available");
  EXPECT_EQ(pod.problem->since - pod.created, absl::Seconds(1));
}

TEST(ReadPod, WaitingContainersHaveOurReasons) {
  const std::pair<const char*, std::string_view> cases[] = {
      {"ErrImagePull", kImagePullFailed},
      {"ImagePullBackOff", kImagePullFailed},
      {"ErrImageNeverPull", kImagePullFailed},
      {"CreateContainerConfigError", kContainerNotCreated}};
  for (const auto& [kubelets, ours] : cases) {
    const ObservedPod pod =
        Seen({{"phase", "Pending"},
              {"containerStatuses",
               Container({{"waiting", {{"reason", kubelets}, {"message", "why"}}}})}});
    ASSERT_TRUE(pod.problem.has_value()) << kubelets;
    EXPECT_EQ(pod.problem->reason, ours);
  }
  const ObservedPod starting =
      Seen({{"phase", "Pending"},
            {"containerStatuses", Container({{"waiting", {{"reason", "ContainerCreating"}}}})}});
  EXPECT_FALSE(starting.problem.has_value());
}

TEST(ReadPod, TerminationMessageOfTheSupervisorTellsTheWholeEnd) {
  const Json record = {{"exitCode", 137},
                       {"signal", 9},
                       {"reason", "OOMKilled"},
                       {"message", "last words"},
                       {"finishedAt", "2026-11-21T10:05:00.123456Z"}};
  const ObservedPod pod =
      Seen({{"phase", "Failed"},
            {"containerStatuses", Container({{"terminated",
                                              {{"exitCode", 137},
                                               {"reason", "Error"},
                                               {"message", record.dump()},
                                               {"finishedAt", "2026-11-21T10:05:01Z"}}}})}});
  ASSERT_TRUE(pod.exit.has_value());
  EXPECT_EQ(pod.exit->reason, "OOMKilled");
  EXPECT_EQ(pod.exit->signal, 9);
  EXPECT_EQ(pod.exit->message, "last words");
  EXPECT_EQ(pod.exit->finished - pod.created, absl::Minutes(5) + absl::Microseconds(123456));
}

TEST(ReadPod, PlainTerminationMessageIsTakenAsItIs) {
  for (const char* message : {"labels.gz: no such file", "{not json", "{\"other\": 1}", "[1]"}) {
    const ObservedPod pod =
        Seen({{"phase", "Failed"},
              {"containerStatuses",
               Container({{"terminated", {{"exitCode", 2}, {"message", message}}}})}});
    ASSERT_TRUE(pod.exit.has_value());
    EXPECT_EQ(pod.exit->message, message);
    EXPECT_EQ(pod.exit->code, 2);
  }
}

TEST(ReadPod, KilledContainerHasItsSignal) {
  const ObservedPod pod =
      Seen({{"phase", "Failed"},
            {"containerStatuses", Container({{"terminated", {{"exitCode", 137}}}})}});
  EXPECT_EQ(pod.exit->signal, 9);
}

TEST(ReadPod, EvictionIsADisruption) {
  const ObservedPod pod =
      Seen({{"phase", "Running"},
            {"conditions", Json::array({{{"type", "DisruptionTarget"},
                                         {"status", "True"},
                                         {"reason", "PreemptionByScheduler"}}})}});
  EXPECT_TRUE(pod.disrupted);
  EXPECT_EQ(pod.disruption, "PreemptionByScheduler");
}

TEST(ReadPod, WhatAnActionSaysIsReadBackFromItsPod) {
  const CreatePod create{.role = Role::kWorker,
                         .index = 1,
                         .config_generation = 1,
                         .memory = "",
                         .avoid = {"node1", "node3"},
                         .world = {.round = 7, .members = {0, 1, 3}, .wanted = 4}};
  Json pod = Pod({});
  for (const auto& [key, value] : AnnotationsOf(create))
    pod["metadata"]["annotations"][key] = value;

  const auto seen = ReadIt(pod);

  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(seen->avoids, create.avoid);
  EXPECT_EQ(seen->world, create.world);
}

TEST(ReadPod, StrangeAnnotationsAreNoRound) {
  for (const char* world : {"", "x", "0,1", "0,x/2", "/", "0/x"}) {
    Json pod = Pod({});
    pod["metadata"]["annotations"] = {{"starling.dev/round", "1"}, {"starling.dev/world", world}};
    EXPECT_EQ(ReadIt(pod)->world.round, 0) << world;
  }
}

TEST(ReadPod, PodOfAnotherJobIsNoneOfOurs) {
  Json pod = Pod({});
  pod["metadata"]["ownerReferences"][0]["uid"] = "another";
  EXPECT_FALSE(ReadIt(pod).has_value());
}

TEST(ReadNode, SaysWhetherItAnswersAndWhetherItWillGo) {
  const auto node = [](const char* ready, const Json& taints) {
    return ReadNode(kube::FromJson<kubernetes::Node>(
        {{"spec", {{"taints", taints}}},
         {"status", {{"conditions", Json::array({{{"type", "Ready"}, {"status", ready}}})}}}}));
  };
  EXPECT_TRUE(node("True", Json::array()).ready);
  EXPECT_TRUE(node("True", Json::array()).departure.empty());
  EXPECT_FALSE(node("Unknown", Json::array()).ready);
  EXPECT_FALSE(ReadNode({}).ready);
  EXPECT_FALSE(node("True", Json::array({{{"key", "ToBeDeletedByClusterAutoscaler"},
                                          {"effect", "NoSchedule"}}}))
                   .departure.empty());
  // Cordoned, or tainted for others: those who are there may stay.
  EXPECT_TRUE(node("True", Json::array({{{"key", "node.kubernetes.io/unschedulable"},
                                         {"effect", "NoSchedule"}},
                                        {{"key", "gpu"}, {"effect", "NoSchedule"}}}))
                  .departure.empty());
}

TEST(IsCheckpointDurable, LooksAtTheVolumeThatHoldsIt) {
  const auto durable = [](const char* uri, const char* volume) {
    v1alpha1::TrainingJobSpec spec;
    if (*uri != '\0') spec.mutable_checkpoint()->set_uri(uri);
    const Json pod = {
        {"spec",
         {{"containers",
           Json::array({{{"name", "trainer"},
                         {"volumeMounts",
                          Json::array({{{"name", "store"}, {"mountPath", "/checkpoints/"}}})}}})},
          {"volumes", Json::array({{{"name", "store"}, {volume, Json::object()}}})}}}};
    spec.mutable_replica_specs()->mutable_worker()->set_template_(pod.dump());
    return IsCheckpointDurable(spec, {.jobs_folder = "", .image = "starling"});
  };
  EXPECT_TRUE(durable("/checkpoints", "persistentVolumeClaim"));
  EXPECT_TRUE(durable("file:///checkpoints/digits", "persistentVolumeClaim"));
  EXPECT_TRUE(durable("/checkpoints/digits", "hostPath"));
  EXPECT_TRUE(durable("s3://bucket/digits", "emptyDir"));
  EXPECT_FALSE(durable("", "persistentVolumeClaim"));
  EXPECT_FALSE(durable("/checkpoints", "emptyDir"));
  EXPECT_FALSE(durable("/checkpoints2", "persistentVolumeClaim"));
  EXPECT_FALSE(durable("checkpoints", "persistentVolumeClaim"));  // starts in the image
  EXPECT_TRUE(IsCheckpointDurable({}, {.jobs_folder = "/jobs", .image = ""}));
}

// Servers write what is trained, a worker the model.
TEST(IsCheckpointDurable, AsksForTheVolumeInBothRolesOfAJobWithServers) {
  const resources::Platform cluster{.jobs_folder = "", .image = "starling"};
  const std::string keeps = R"({"spec": {
      "containers": [{"name": "trainer",
                      "volumeMounts": [{"name": "store", "mountPath": "/checkpoints"}]}],
      "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": "store"}}]}})";
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_checkpoint()->set_uri("/checkpoints");
  spec.mutable_replica_specs()->mutable_worker()->set_template_(keeps);
  EXPECT_TRUE(IsCheckpointDurable(spec, cluster));
  spec.mutable_exchange()->mutable_parameter_server();
  EXPECT_FALSE(IsCheckpointDurable(spec, cluster));
  spec.mutable_replica_specs()->mutable_parameter_server()->set_template_(keeps);
  EXPECT_TRUE(IsCheckpointDurable(spec, cluster));
  spec.mutable_replica_specs()->mutable_worker()->clear_template_();
  EXPECT_FALSE(IsCheckpointDurable(spec, cluster));
}

}  // namespace
}  // namespace starling::trainingjob
