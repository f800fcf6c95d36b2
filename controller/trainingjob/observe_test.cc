// SPDX-License-Identifier: Apache-2.0
// Jobs, pods and nodes as a real cluster shows them.
#include "controller/trainingjob/observe.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "common/json/json.h"
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

// A job as it is stored, with what else there is of it.
struct Stored {
  Json job = {{"metadata",
               {{"namespace", "default"},
                {"name", "digits"},
                {"uid", "uid-of-the-job"},
                {"generation", 3},
                {"creationTimestamp", "2026-11-21T10:00:00Z"},
                {"annotations", Json::object()}}},
              {"spec",
               {{"workload", {{"classification", {{"model", {{"mlp", Json::object()}}}}}}},
                {"dataset", {{"train", {{"synthetic", Json::object()}}}}}}}};
  JobObjects objects;
  resources::Platform platform{.jobs_folder = "", .image = "starling:1"};

  Reading Look() {
    objects.job = &job;
    return Read(objects, platform);
  }
  Observed See() { return Look().observed; }
  std::string Error() { return See().spec_error; }

  Json& Worker() { return job["spec"]["replicaSpecs"]["worker"]; }
  // The job brings its own container.
  void BringContainer() {
    job["spec"] = {{"workload", {{"container", {{"framework", "PyTorch"}}}}}};
    Worker()["template"] = Json::parse(R"({"spec": {"containers": [
        {"name": "trainer", "image": "mine:2", "command": ["train"]}]}})");
  }

  // What was frozen of `given` for pods of a generation.
  kubernetes::ConfigMap& Freeze(std::int64_t generation, const std::string& given,
                                const std::string& resolved = "{}",
                                const JobIdentity& job_of_it = kIdentity) {
    return Keep(resources::BuildConfig(job_of_it, generation, given, resolved));
  }
  kubernetes::ConfigMap& Keep(kubernetes::ConfigMap config) {
    auto kept = std::make_shared<kubernetes::ConfigMap>(std::move(config));
    objects.configs.push_back(kept);
    return *kept;
  }
};

const JobIdentity kFormer{"default", "digits", "uid-of-a-former-job"};

TEST(ReadJob, SaysWhenItWasMadeAndWhetherItIsToGo) {
  Stored stored;
  const Observed seen = stored.See();
  EXPECT_EQ(absl::FormatTime(absl::RFC3339_full, seen.created, absl::UTCTimeZone()),
            "2026-11-21T10:00:00+00:00");
  EXPECT_EQ(seen.generation, 3);
  EXPECT_FALSE(seen.deleting);
  stored.job["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z";
  EXPECT_TRUE(stored.See().deleting);
}

TEST(ReadJob, SaysForWhichCheckpointAndWhichTimelineItIsAsked) {
  Stored stored;
  stored.job["metadata"]["annotations"] = {{"starling.dev/checkpoint-requested-at", "now"},
                                           {"starling.dev/trace-requested", "steps=5"}};
  const Observed seen = stored.See();
  EXPECT_EQ(seen.checkpoint_request, "now");
  EXPECT_EQ(seen.trace_request, "steps=5");
  EXPECT_EQ(seen.trace_stored, "");
}

TEST(ReadJob, StatusIsReadInTheFirstPassToo) {
  Stored stored;
  stored.job["status"] = {{"state", "Running"}};
  EXPECT_EQ(stored.See().status.state(), "Running");
}

TEST(ReadJob, AJobWithoutAStatusIsReadOnceToo) {
  Stored stored;
  stored.objects.spec = stored.Look().spec;
  const Reading second = stored.Look();
  EXPECT_EQ(second.spec, stored.objects.spec);
  EXPECT_EQ(second.observed.spec_error, "");
  EXPECT_EQ(second.observed.status.ByteSizeLong(), 0U);
}

TEST(ReadJob, WhatTheUserWroteIsKeptAsItWasWritten) {
  Stored stored;
  const auto given = json::Parse(stored.Look().spec->given_json);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(*given, stored.job["spec"]);
}

TEST(ReadJob, ARuleThatIsBrokenIsAnErrorThatNamesTheField) {
  Stored stored;
  EXPECT_EQ(stored.Error(), "");
  stored.Worker() = {{"replicas", 2}, {"minReplicas", 3}};
  EXPECT_TRUE(absl::StrContains(stored.Error(), "spec.replicaSpecs.worker.replicas"))
      << stored.Error();
}

TEST(ReadJob, ATemplateThatWasNotAppliedIsAnError) {
  Stored stored;
  stored.job["spec"]["templateRef"] = {{"name", "house"}};
  EXPECT_TRUE(absl::StrContains(stored.Error(), "was not applied")) << stored.Error();
}

// Of several that give none the first is told, the coordinator's.
TEST(ReadJob, APodTemplateThatGivesNoPodIsAnErrorThatNamesIt) {
  const Json odd = Json::parse(R"({"spec": {"containers": [
      {"name": "trainer", "resources": {"requests": "all"}}]}})");
  Stored stored;
  stored.Worker()["template"] = odd;
  EXPECT_TRUE(absl::StrContains(stored.Error(), "worker.template")) << stored.Error();
  stored.job["spec"]["replicaSpecs"]["coordinator"]["template"] = odd;
  EXPECT_TRUE(absl::StrContains(stored.Error(), "coordinator.template")) << stored.Error();
  stored.Worker().update({{"replicas", 2}, {"minReplicas", 3}});
  EXPECT_TRUE(absl::StrContains(stored.Error(), "worker.replicas")) << stored.Error();
}

// A controller with stricter rules ends no job that runs.
TEST(ReadJob, AJobThatHasBegunIsNotJudgedAnew) {
  Stored stored;
  stored.Worker() = {{"replicas", 2}, {"minReplicas", 3}};
  stored.Freeze(3, stored.Look().spec->given_json);
  EXPECT_EQ(stored.Error(), "");
  Json other = stored.job["spec"];
  other["seed"] = 5;
  stored.objects.configs.clear();
  stored.Freeze(2, other.dump());
  EXPECT_NE(stored.Error(), "") << "what was frozen is of another spec";
}

TEST(ReadJob, PodsOfAContainerJobAreBuiltOnceToSeeWhetherTheyCanBe) {
  Stored stored;
  EXPECT_FALSE(stored.Look().pods.has_value()) << "it is of our own roles";
  stored.BringContainer();
  const Reading first = stored.Look();
  EXPECT_EQ(first.observed.spec_error, "");
  ASSERT_TRUE(first.pods.has_value());
  const CreatePod create{.role = Role::kWorker,
                         .index = 0,
                         .config_generation = 0,
                         .world = {.round = 1, .members = {0}, .wanted = 1}};
  PodBuilder builder(first.observed.job, stored.platform);
  builder.Use(0, *first.pods);
  EXPECT_EQ(*builder.Build(first.observed.spec, create),
            *BuildJobPod(first.observed.job, first.observed.spec, create, stored.platform));

  stored.Freeze(3, first.spec->given_json);
  EXPECT_FALSE(stored.Look().pods.has_value()) << "it has begun";
  stored.objects.configs.clear();
  stored.Worker().update({{"replicas", 2}, {"minReplicas", 3}});
  EXPECT_FALSE(stored.Look().pods.has_value()) << "it may have none";
}

TEST(ReadJob, OnlyWhatBelongsToItIsThere) {
  for (const JobIdentity& owner : {kIdentity, kFormer}) {
    Stored stored;
    stored.platform.seed = "the seed of these tests: 32 bytes";
    const auto credentials = resources::MakeJobCredentials(stored.platform.seed, kIdentity.uid,
                                                           absl::FromUnixSeconds(1'800'000'000));
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    stored.objects.secret =
        std::make_shared<kubernetes::Secret>(resources::BuildSecret(owner, *credentials));
    stored.objects.service = std::make_shared<kubernetes::Service>(resources::BuildService(owner));
    stored.objects.budget = std::make_shared<kubernetes::PodDisruptionBudget>(
        resources::BuildBudget(owner, Role::kWorker));
    stored.objects.slices = {std::make_shared<kubernetes::EndpointSlice>(resources::BuildSlice(
        owner, "digits-ipv4-0", {{"digits-worker-0", "u", "h", "a", "10.0.0.1"}}))};
    const bool own = owner.uid == kIdentity.uid;
    const Observed seen = stored.See();
    EXPECT_EQ(seen.has_secret, own);
    EXPECT_EQ(seen.has_service, own);
    EXPECT_EQ(seen.has_budget, own);
    ASSERT_EQ(seen.slices.size(), 1U) << "an earlier job's lead from the same names";
    EXPECT_EQ(seen.slices.front().own, own);
    EXPECT_FALSE(seen.service_selects);
  }
  const Observed bare = Stored().See();
  EXPECT_FALSE(bare.has_secret || bare.has_service || bare.has_budget);
}

TEST(ReadJob, SlicesThatKubernetesKeepsForAServiceAreItsOwn) {
  Stored stored;
  auto slice = std::make_shared<kubernetes::EndpointSlice>(resources::BuildSlice(
      kIdentity, "digits-x7k2p", {{"digits-worker-0", "u", "h", "a", "10.0.0.1"}}));
  slice->mutable_metadata()->mutable_owner_references(0)->set_kind("Service");
  stored.objects.slices = {slice};
  EXPECT_TRUE(stored.See().slices.empty());
  auto service = std::make_shared<kubernetes::Service>(resources::BuildService(kIdentity));
  (*service->mutable_spec()->mutable_selector())["starling.dev/job"] = "digits";
  stored.objects.service = service;
  EXPECT_TRUE(stored.See().service_selects);
}

TEST(ReadJob, ASecretWithoutALeafForServersIsNoneForAJobThatHasThem) {
  Stored stored;
  stored.platform.seed = "the seed of these tests: 32 bytes";
  stored.job["spec"]["exchange"] = {{"parameterServer", Json::object()}};
  for (const auto servers : {resources::Servers::kNone, resources::Servers::kSome}) {
    const auto credentials = resources::MakeJobCredentials(
        stored.platform.seed, kIdentity.uid, absl::FromUnixSeconds(1'800'000'000), servers);
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    stored.objects.secret =
        std::make_shared<kubernetes::Secret>(resources::BuildSecret(kIdentity, *credentials));
    EXPECT_EQ(stored.See().has_secret, servers == resources::Servers::kSome);
  }
}

TEST(ReadJob, SaysWhetherItsCheckpointsOutliveItsPods) {
  Stored stored;
  EXPECT_FALSE(stored.See().checkpoint_durable);
  stored.platform = {.jobs_folder = "/jobs", .image = ""};
  EXPECT_TRUE(stored.See().checkpoint_durable);
}

TEST(ReadConfigs, AFrozenSpecIsCurrentWhileOnlyWhatARunningJobMayChangeDiffers) {
  Stored stored;
  const auto current = [&](const std::string& given) {
    stored.objects.configs.clear();
    stored.Freeze(2, given);
    const Observed seen = stored.See();
    EXPECT_EQ(seen.configs.size(), 1U);
    EXPECT_EQ(seen.configs.front().generation, 2);
    return seen.configs.front().current;
  };
  Json given = stored.job["spec"];
  EXPECT_TRUE(current(stored.Look().spec->given_json));
  given["replicaSpecs"] = {{"worker", {{"replicas", 7}}}};
  given["fieldOfANewerController"] = true;
  EXPECT_TRUE(current(given.dump()));
  given["seed"] = 5;
  EXPECT_FALSE(current(given.dump()));
}

TEST(ReadConfigs, AFrozenSpecThatCannotBeReadIsNotCurrent) {
  Stored stored;
  Json strange = stored.job["spec"];
  strange["seed"] = "five";
  for (const std::string& given : {std::string("{not json"), std::string(), strange.dump()}) {
    stored.objects.configs.clear();
    stored.Freeze(2, given);
    const Observed seen = stored.See();
    ASSERT_EQ(seen.configs.size(), 1U) << given;
    EXPECT_FALSE(seen.configs.front().current) << given;
  }
}

TEST(ReadConfigs, WhatIsOfAnotherJobOrGoesOrHoldsNoSpecIsNone) {
  Stored stored;
  const std::string given = stored.Look().spec->given_json;
  stored.Freeze(1, given, "{}", kFormer);
  stored.Freeze(2, given).mutable_metadata()->mutable_deletion_timestamp()->set_seconds(1);
  stored.Keep(resources::BuildTrace(kIdentity, "steps=5", "packed"));
  EXPECT_TRUE(stored.See().configs.empty());
  stored.Freeze(3, given);
  const Observed seen = stored.See();
  ASSERT_EQ(seen.configs.size(), 1U);
  EXPECT_EQ(seen.configs.front().generation, 3);
}

// The job's spec with another seed.
std::string Seeded(const Stored& stored, std::int64_t seed) {
  Json spec = stored.job["spec"];
  spec["seed"] = seed;
  return spec.dump();
}

TEST(FrozenSpec, IsWhatWasFrozenForThePodsOfThatGeneration) {
  Stored stored;
  stored.Freeze(1, "{}", Seeded(stored, 100), kFormer);
  for (int i = 1; i <= 2; ++i) stored.Freeze(i, "{}", Seeded(stored, i));
  const Observed seen = stored.See();
  for (int i = 1; i <= 2; ++i) EXPECT_EQ(FrozenSpec(stored.objects, seen, i).seed(), i);
}

TEST(FrozenSpec, IsTheJobsOwnWhereThereIsNoneThatCanBeRead) {
  Stored stored;
  stored.job["spec"]["seed"] = 9;
  stored.Freeze(1, "{}", "{not json");
  stored.Freeze(2, "{}", Seeded(stored, 2), kFormer);
  const Observed seen = stored.See();
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(FrozenSpec(stored.objects, seen, i).seed(), 9) << i;
}

TEST(StoredTrace, IsTheTimelineOfThisJobThatStays) {
  Stored stored;
  stored.Freeze(1, "{}");
  stored.Keep(resources::BuildTrace(kFormer, "former", "packed"));
  stored.Keep(resources::BuildTrace(kIdentity, "goes", "packed"))
      .mutable_metadata()
      ->mutable_deletion_timestamp()
      ->set_seconds(1);
  EXPECT_EQ(StoredTrace(stored.objects, kIdentity), nullptr);
  EXPECT_EQ(stored.See().trace_stored, "");
  const auto& kept = stored.Keep(resources::BuildTrace(kIdentity, "steps=5", "packed"));
  EXPECT_EQ(StoredTrace(stored.objects, kIdentity), &kept);
  EXPECT_EQ(stored.See().trace_stored, "steps=5");
}

// Somebody else's hands may have made it.
TEST(StoredTrace, OneWithoutAWordIsForNoRequest) {
  Stored stored;
  stored.Keep(resources::BuildTrace(kIdentity, "steps=5", "packed"))
      .mutable_metadata()
      ->clear_annotations();
  EXPECT_EQ(stored.See().trace_stored, "");
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
  for (const char* message :
       {"labels.gz: no such file", "{not json", "{\"other\": 1}", "[1]", " {\"exitCode\": 3}"}) {
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

TEST(ReadPod, AContainerThatRunsHasNoEnd) {
  const ObservedPod pod =
      Seen({{"phase", "Running"}, {"containerStatuses", Container({{"running", Json::object()}})}});
  EXPECT_FALSE(pod.exit.has_value());
}

TEST(ReadPod, ASignalThatIsToldIsNotGuessedFromTheCode) {
  const ObservedPod pod = Seen(
      {{"phase", "Failed"},
       {"containerStatuses", Container({{"terminated", {{"exitCode", 137}, {"signal", 15}}}})}});
  EXPECT_EQ(pod.exit->signal, 15);
}

TEST(ReadPod, ARoundThatIsNoNumberIsNone) {
  for (const char* round : {"", "x", "7x"}) {
    Json pod = Pod({});
    pod["metadata"]["annotations"] = {{"starling.dev/round", round},
                                      {"starling.dev/world", "0,1/2"}};
    EXPECT_EQ(ReadIt(pod)->world, World{}) << round;
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

TEST(ReadPod, SaysAllThatDecisionsAreMadeFrom) {
  Json pod = Pod({{"phase", "Running"},
                  {"podIP", "10.0.0.7"},
                  {"reason", "Evicted"},
                  {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}});
  pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:30Z";
  const auto seen = ReadIt(pod);
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(seen->name, "digits-worker-1");
  EXPECT_EQ(seen->uid, "u1");
  EXPECT_EQ(seen->ip, "10.0.0.7");
  EXPECT_EQ(seen->role, Role::kWorker);
  EXPECT_EQ(seen->index, 1);
  EXPECT_EQ(seen->phase, PodPhase::kRunning);
  EXPECT_EQ(seen->reason, "Evicted");
  EXPECT_TRUE(seen->ready);
  EXPECT_TRUE(seen->terminating);
  EXPECT_TRUE(seen->disrupted);
  EXPECT_EQ(seen->disruption, "");
  EXPECT_EQ(seen->deletion_due - seen->created, absl::Seconds(30));
  EXPECT_FALSE(seen->exit.has_value());
  EXPECT_TRUE(seen->avoids.empty());
}

TEST(ReadPod, IsReadyOnlyWhileItRuns) {
  for (const char* phase : {"Running", "Succeeded"}) {
    const ObservedPod pod = Seen(
        {{"phase", phase}, {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}});
    EXPECT_EQ(pod.ready, std::string_view(phase) == "Running");
  }
  EXPECT_FALSE(Seen({{"phase", "Running"}}).ready);
  EXPECT_FALSE(Seen({{"phase", "Running"}}).terminating);
  EXPECT_FALSE(Seen({{"phase", "Running"}}).disrupted);
}

TEST(ReadPod, PhasesThatAreNotKnownMayRun) {
  const std::pair<const char*, PodPhase> phases[] = {
      {"", PodPhase::kPending},        {"Pending", PodPhase::kPending},
      {"Running", PodPhase::kRunning}, {"Succeeded", PodPhase::kSucceeded},
      {"Failed", PodPhase::kFailed},   {"Unknown", PodPhase::kRunning}};
  for (const auto& [phase, expected] : phases) {
    EXPECT_EQ(Seen({{"phase", phase}}).phase, expected) << phase;
  }
}

TEST(ReadPod, WithoutARoleOrAnIndexItIsNoneOfOurs) {
  for (const char* label : {"starling.dev/role", "starling.dev/index"}) {
    for (const Json& value : {Json("odd"), Json()}) {
      Json pod = Pod({{"phase", "Running"}});
      pod["metadata"]["labels"][label] = value;
      if (value.is_null()) pod["metadata"]["labels"].erase(label);
      EXPECT_FALSE(ReadIt(pod).has_value()) << label << " " << value;
    }
  }
}

TEST(ReadPod, OnlyTheTrainersContainerTellsItsEndAndItsMemory) {
  Json pod = Pod({{"phase", "Failed"},
                  {"containerStatuses",
                   Json::array({{{"name", "proxy"}, {"state", {{"terminated", {{"exitCode", 7}}}}}},
                                {{"name", "trainer"},
                                 {"state",
                                  {{"terminated",
                                    {{"exitCode", 3},
                                     {"signal", 11},
                                     {"reason", "Error"},
                                     {"finishedAt", "2026-11-21T10:07:00Z"}}}}}}})}});
  pod["spec"]["containers"].insert(
      pod["spec"]["containers"].begin(),
      Json{{"name", "proxy"}, {"resources", {{"limits", {{"memory", "1Gi"}}}}}});
  auto seen = ReadIt(pod);
  ASSERT_TRUE(seen->exit.has_value());
  EXPECT_EQ(seen->exit->code, 3);
  EXPECT_EQ(seen->exit->signal, 11);
  EXPECT_EQ(seen->exit->reason, "Error");
  EXPECT_EQ(seen->exit->finished - seen->created, absl::Minutes(7));
  EXPECT_EQ(seen->memory, 64LL << 20);
  pod["status"]["containerStatuses"].erase(1);
  EXPECT_FALSE(ReadIt(pod)->exit.has_value());
  pod["spec"]["containers"][1]["resources"] = Json::object();
  EXPECT_EQ(ReadIt(pod)->memory, 0) << "it has no limit";
  pod["spec"]["containers"].erase(1);
  EXPECT_EQ(ReadIt(pod)->memory, 0);
}

TEST(ReadPod, AnEndWithoutATimeIsAsOldAsThePod) {
  const ObservedPod pod = Seen(
      {{"phase", "Failed"}, {"containerStatuses", Container({{"terminated", {{"exitCode", 1}}}})}});
  EXPECT_EQ(pod.exit->finished, pod.created);
  EXPECT_EQ(pod.exit->signal, 0);
  for (const int code : {136, 138}) {
    EXPECT_EQ(Seen({{"phase", "Failed"},
                    {"containerStatuses", Container({{"terminated", {{"exitCode", code}}}})}})
                  .exit->signal,
              0)
        << code;
  }
}

// What the supervisor says replaces what the kubelet says only where it says it.
TEST(ReadPod, ATerminationMessageSaysNoMoreThanIsInIt) {
  const auto exit = [](const Json& record) {
    return *Seen({{"phase", "Failed"},
                  {"containerStatuses", Container({{"terminated",
                                                    {{"exitCode", 1},
                                                     {"signal", 4},
                                                     {"reason", "Error"},
                                                     {"message", record.dump()},
                                                     {"finishedAt", "2026-11-21T10:05:01Z"}}}})}})
                .exit;
  };
  const PodExit bare = exit({{"exitCode", 1}, {"reason", "Odd"}});
  EXPECT_EQ(bare.signal, 4);
  EXPECT_EQ(bare.reason, "Error");
  EXPECT_EQ(bare.message, "");
  EXPECT_EQ(bare.finished, exit({{"exitCode", 1}, {"finishedAt", "soon"}}).finished);
  EXPECT_EQ(exit({{"exitCode", 1}, {"signal", 6}}).signal, 6);
}

TEST(ReadPod, OnlyWhoWaitsForItsStartHasAProblem) {
  const Json unschedulable =
      Json::array({{{"type", "PodScheduled"}, {"status", "False"}, {"reason", "Unschedulable"}}});
  EXPECT_TRUE(Seen({{"phase", "Pending"}, {"conditions", unschedulable}}).problem.has_value());
  EXPECT_FALSE(Seen({{"phase", "Running"}, {"conditions", unschedulable}}).problem.has_value());
  Json scheduled = unschedulable;
  scheduled[0]["status"] = "True";
  EXPECT_FALSE(Seen({{"phase", "Pending"}, {"conditions", scheduled}}).problem.has_value());
  Json gated = unschedulable;
  gated[0]["reason"] = "SchedulingGated";
  EXPECT_EQ(Seen({{"phase", "Pending"}, {"conditions", gated}}).problem->reason, kSchedulingGated);
}

TEST(ReadPod, AContainerThatWaitsIsNamedWithWhatTheKubeletSays) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    Json statuses =
        Container({{"waiting", {{"reason", "ErrImagePull"}, {"message", "no such tag"}}}});
    statuses.insert(statuses.begin(),
                    Json{{"name", "first"}, {"state", {{"running", Json::object()}}}});
    const ObservedPod pod =
        Seen({{"phase", "Pending"}, {"startTime", "2026-11-21T10:00:02Z"}, {list, statuses}});
    ASSERT_TRUE(pod.problem.has_value()) << list;
    EXPECT_EQ(pod.problem->message, "container trainer: ErrImagePull: no such tag");
    EXPECT_EQ(pod.problem->since - pod.created, absl::Seconds(2));
  }
}

TEST(ReadPod, TheKubeletsWordForAnEvictionIsOne) {
  for (const auto& [reason, disrupted] : {std::pair("Evicted", true),
                                          {"NodeShutdown", true},
                                          {"Preempting", true},
                                          {"DeadlineExceeded", false}}) {
    EXPECT_EQ(Seen({{"phase", "Failed"}, {"reason", reason}}).disrupted, disrupted) << reason;
  }
  const ObservedPod spared =
      Seen({{"phase", "Running"},
            {"conditions", Json::array({{{"type", "DisruptionTarget"},
                                         {"status", "False"},
                                         {"reason", "PreemptionByScheduler"}}})}});
  EXPECT_FALSE(spared.disrupted);
  EXPECT_EQ(spared.disruption, "");
}

TEST(AnnotationsOf, SayNothingWhereThereIsNothingToBeSaid) {
  CreatePod create{.role = Role::kWorker, .index = 1, .config_generation = 1};
  EXPECT_TRUE(AnnotationsOf(create).empty());
  create.world = {.round = 1, .members = {0, 1}, .wanted = 2};
  EXPECT_EQ(AnnotationsOf(create).size(), 2U);
  EXPECT_EQ(AnnotationsOf(create).at("starling.dev/world"), "0,1/2");
}

TEST(ReadNode, SaysByWhatItsEndIsAnnounced) {
  Json node = {
      {"metadata", {{"name", "b"}}},
      {"spec",
       {{"taints", Json::array({{{"key", "karpenter.sh/disrupted"}, {"effect", "NoSchedule"}}})}}}};
  EXPECT_EQ(ReadNode(kube::FromJson<kubernetes::Node>(node)).departure,
            "taint karpenter.sh/disrupted");
  node["spec"] = Json::object();
  node["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z";
  EXPECT_EQ(ReadNode(kube::FromJson<kubernetes::Node>(node)).departure,
            "its object is being deleted");
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

// Of several mounts the innermost holds it, in whatever order they are written.
TEST(IsCheckpointDurable, LooksAtTheInnermostMountOfTheTrainersContainer) {
  const auto durable = [](const char* outer, const char* inner, const char* where, bool swap) {
    Json mounts = Json::array({{{"name", outer}, {"mountPath", "/data"}},
                               {{"name", inner}, {"mountPath", "/data/checkpoints"}},
                               {{"name", "no place"}}});
    if (swap) std::swap(mounts[0], mounts[1]);
    const Json pod = {
        {"spec",
         {{"containers",
           Json::array({{{"name", "proxy"},
                         {"volumeMounts", Json::array({{{"name", "claim"}, {"mountPath", "/"}}})}},
                        {{"name", "trainer"}, {"volumeMounts", mounts}}})},
          {"volumes", Json::array({{{"name", "claim"}, {"persistentVolumeClaim", Json::object()}},
                                   {{"name", "scratch"}, {"emptyDir", Json::object()}}})}}}};
    v1alpha1::TrainingJobSpec spec;
    spec.mutable_checkpoint()->set_uri(where);
    spec.mutable_replica_specs()->mutable_worker()->set_template_(pod.dump());
    return IsCheckpointDurable(spec, {.jobs_folder = "", .image = "starling"});
  };
  for (const bool swap : {false, true}) {
    EXPECT_TRUE(durable("scratch", "claim", "/data/checkpoints/a", swap));
    EXPECT_FALSE(durable("claim", "scratch", "/data/checkpoints/a", swap));
    EXPECT_TRUE(durable("claim", "scratch", "/data/a", swap));
    EXPECT_FALSE(durable("claim", "claim", "/elsewhere", swap)) << "only the proxy's mount has it";
    EXPECT_TRUE(durable("claim", "/", "/data", swap));
  }
}

TEST(IsCheckpointDurable, AMountOfTheRootHoldsAllThatHasNoOther) {
  const Json pod = Json::parse(R"({"spec": {
      "containers": [{"name": "trainer", "volumeMounts": [{"name": "store", "mountPath": "/"}]}],
      "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": "store"}}]}})");
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_replica_specs()->mutable_worker()->set_template_(pod.dump());
  const resources::Platform cluster{.jobs_folder = "", .image = "starling"};
  for (const char* uri : {"/checkpoints", "checkpoints", "/", "file:///checkpoints"}) {
    spec.mutable_checkpoint()->set_uri(uri);
    EXPECT_TRUE(IsCheckpointDurable(spec, cluster)) << uri;
  }
}

TEST(IsCheckpointDurable, OfAContainerOfTheUsersNothingIsSaid) {
  v1alpha1::TrainingJobSpec spec;
  const resources::Platform cluster{.jobs_folder = "", .image = "starling"};
  EXPECT_FALSE(IsCheckpointDurable(spec, cluster));
  spec.mutable_workload()->mutable_container();
  EXPECT_TRUE(IsCheckpointDurable(spec, cluster));
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
