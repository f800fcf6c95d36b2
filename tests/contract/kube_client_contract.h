// SPDX-License-Identifier: Apache-2.0
// What every KubeClient must do, as a suite that each implementation runs.
//
// The controller relies on exactly this, so what passes here can stand in for a real API server.
// To run it for another implementation:
//
//   INSTANTIATE_TEST_SUITE_P(Mine, KubeClientContract, testing::Values(ClusterFactory{...}),
//   NameOf);
//
// Names are unique to a test, so that all can share one real cluster. A test that needs more than
// the contract promises belongs beside the implementation.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/spec/checkpoint_request.h"
#include "controller/kube/garbage_collector.h"
#include "controller/kube/kube_client.h"
#include "controller/kube/objects.h"

namespace starling::kube {

// A cluster and two doors to it; they may be the same door.
class Cluster {
 public:
  virtual ~Cluster() = default;
  virtual KubeClient& writer() = 0;
  virtual KubeClient& reader() = 0;
};

struct ClusterFactory {
  std::string name;
  std::function<std::unique_ptr<Cluster>()> open;
};

inline std::string NameOfFactory(const testing::TestParamInfo<ClusterFactory>& info) {
  return info.param.name;
}

constexpr absl::Duration kPatience = absl::Seconds(10);

class KubeClientContract : public testing::TestWithParam<ClusterFactory> {
 protected:
  KubeClientContract() : cluster_(GetParam().open()) {}

  KubeClient& writer() { return cluster_->writer(); }
  KubeClient& reader() { return cluster_->reader(); }

  static Json Job(const std::string& name) {
    const Json source = {{"synthetic", {{"samples", 64}}}};
    return {{"apiVersion", "starling.dev/v1alpha1"},
            {"kind", "TrainingJob"},
            {"metadata", {{"name", name}, {"namespace", "default"}}},
            {"spec",
             {{"seed", 1},
              {"workload", {{"classification", {{"model", {{"mlp", Json::object()}}}}}}},
              {"dataset", {{"train", source}}},
              {"runPolicy", {{"suspend", false}}},
              {"replicaSpecs", {{"worker", {{"replicas", 2}}}}}}}};
  }

  // Of what may change while a job runs.
  static Json WorkersPatch(int replicas) {
    return {{"spec", {{"replicaSpecs", {{"worker", {{"replicas", replicas}}}}}}}};
  }

  static Json ConfigMap(const std::string& name, const Json& labels = Json::object()) {
    return {{"apiVersion", "v1"},
            {"kind", "ConfigMap"},
            {"metadata", {{"name", name}, {"namespace", "default"}, {"labels", labels}}},
            {"data", {{"key", "value"}}}};
  }

  static Json Pod(const std::string& name) {
    const Json container = {{"name", "trainer"}, {"image", "starling"}};
    return {{"apiVersion", "v1"},
            {"kind", "Pod"},
            {"metadata", {{"name", name}, {"namespace", "default"}}},
            {"spec", {{"containers", Json::array({container})}, {"restartPolicy", "Never"}}}};
  }

  Json Created(const ResourceKind& kind, const Json& object) {
    auto created = writer().Create(kind, object);
    EXPECT_TRUE(created.ok()) << created.status();
    return created.ok() ? *created : Json();
  }

  Json Read(const ResourceKind& kind, const std::string& name) {
    auto found = reader().Get(kind, {"default", name});
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *found : Json();
  }

  std::vector<std::string> ListedNames(const ResourceKind& kind, const Selection& selection) {
    const auto list = reader().List(kind, "default", {selection, 0, ""});
    EXPECT_TRUE(list.ok()) << list.status();
    std::vector<std::string> names;
    if (!list.ok()) return names;
    for (const Json& item : list->items) names.push_back(NameOf(item));
    return names;
  }

  std::string VersionNow(const ResourceKind& kind) {
    const auto list = reader().List(kind, "default", {});
    EXPECT_TRUE(list.ok()) << list.status();
    return list.ok() ? list->resource_version : "";
  }

  // The next events that are no bookmarks, "ADDED name", at most `count`.
  static std::vector<std::string> Events(WatchStream& watch, std::size_t count) {
    std::vector<std::string> events;
    while (events.size() < count) {
      const auto event = watch.Next(kPatience);
      EXPECT_TRUE(event.ok()) << event.status();
      if (!event.ok() || !*event) break;
      if ((*event)->type == WatchEventType::kBookmark) continue;
      constexpr const char* kNames[] = {"ADDED ", "MODIFIED ", "DELETED "};
      events.push_back(kNames[static_cast<int>((*event)->type)] + NameOf(*(*event)->object));
    }
    return events;
  }

  const std::unique_ptr<Cluster> cluster_;
};

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_P(KubeClientContract, ACreatedObjectCarriesTheServersMetadata) {
  const Json job = Created(kTrainingJob, Job("fresh"));

  EXPECT_FALSE(UidOf(job).empty());
  EXPECT_FALSE(ResourceVersionOf(job).empty());
  EXPECT_EQ(GenerationOf(job), 1);
  EXPECT_TRUE(CreationTimeOf(job).has_value());
  EXPECT_EQ(Read(kTrainingJob, "fresh"), job);
}

TEST_P(KubeClientContract, WhatTheWriterClaimsOfTheServersMetadataCountsForNothing) {
  Json wanted = ConfigMap("claims");
  wanted["metadata"]["uid"] = "mine";
  wanted["metadata"]["creationTimestamp"] = "1999-01-01T00:00:00Z";

  const Json created = Created(kConfigMap, wanted);

  EXPECT_NE(UidOf(created), "mine");
  EXPECT_GT(*CreationTimeOf(created), absl::FromUnixSeconds(1'000'000'000));
}

TEST_P(KubeClientContract, ANameIsTakenOnlyOnce) {
  Created(kConfigMap, ConfigMap("once"));

  EXPECT_TRUE(absl::IsAlreadyExists(writer().Create(kConfigMap, ConfigMap("once")).status()));
  EXPECT_TRUE(writer()
                  .Create(kSecret,
                          [] {
                            Json secret = ConfigMap("once");
                            secret["kind"] = "Secret";
                            secret["data"] = {{"key", "dmFsdWU="}};
                            return secret;
                          }())
                  .ok())
      << "of another kind it is free";
}

TEST_P(KubeClientContract, AGeneratedNameBeginsAsAskedAndIsNew) {
  Json wanted = ConfigMap("");
  wanted["metadata"].erase("name");
  wanted["metadata"]["generateName"] = "many-";

  const Json first = Created(kConfigMap, wanted);
  const Json second = Created(kConfigMap, wanted);

  EXPECT_THAT(NameOf(first), testing::StartsWith("many-"));
  EXPECT_EQ(NameOf(first).size(), 10U);
  EXPECT_NE(NameOf(first), NameOf(second));
}

TEST_P(KubeClientContract, AnIllegalNameIsRefused) {
  for (const char* name : {"", "Upper", "under_score", "-dash", "dot."}) {
    EXPECT_TRUE(absl::IsInvalidArgument(writer().Create(kConfigMap, ConfigMap(name)).status()))
        << name;
  }
}

TEST_P(KubeClientContract, AnObjectOfAnotherKindIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(writer().Create(kPod, ConfigMap("wrong-kind")).status()));
}

TEST_P(KubeClientContract, WhatIsNotThereIsNotFoundByAnyVerb) {
  const ObjectKey key{"default", "nowhere"};
  Json object = ConfigMap("nowhere");
  object["metadata"]["resourceVersion"] = "1";

  EXPECT_TRUE(absl::IsNotFound(reader().Get(kConfigMap, key).status()));
  EXPECT_TRUE(absl::IsNotFound(writer().Update(kConfigMap, object).status()));
  EXPECT_TRUE(absl::IsNotFound(writer().Patch(kConfigMap, key, Json::object()).status()));
  EXPECT_TRUE(absl::IsNotFound(writer().Delete(kConfigMap, key, {}).status()));
  EXPECT_TRUE(absl::IsNotFound(reader().GetScale(kTrainingJob, key).status()));
  EXPECT_THAT(reader().Get(kConfigMap, key).status().message(), HasSubstr("nowhere"));
}

TEST_P(KubeClientContract, AnUpdateOfAnOldVersionIsAConflictAndChangesNothing) {
  const Json old = Created(kConfigMap, ConfigMap("raced"));
  Json mine = old;
  mine["data"]["key"] = "mine";
  Json theirs = old;
  theirs["data"]["key"] = "theirs";

  EXPECT_TRUE(writer().Update(kConfigMap, theirs).ok());
  EXPECT_TRUE(absl::IsAborted(writer().Update(kConfigMap, mine).status()));

  EXPECT_EQ(StringAt(Read(kConfigMap, "raced"), "/data/key"), "theirs");
}

TEST_P(KubeClientContract, AnUpdateOfAnObjectThatTookTheNameIsAConflict) {
  Json old = Created(kConfigMap, ConfigMap("reborn"));
  ASSERT_TRUE(writer().Delete(kConfigMap, KeyOf(old), {}).ok());
  const Json successor = Created(kConfigMap, ConfigMap("reborn"));

  old["metadata"]["resourceVersion"] = ResourceVersionOf(successor);

  EXPECT_TRUE(absl::IsAborted(writer().Update(kConfigMap, old).status()));
}

TEST_P(KubeClientContract, ATrainingJobIsNotUpdatedBlindly) {
  Json job = Created(kTrainingJob, Job("blind"));
  job["metadata"].erase("resourceVersion");

  EXPECT_TRUE(absl::IsInvalidArgument(writer().Update(kTrainingJob, job).status()));
}

TEST_P(KubeClientContract, AWriteThatChangesNothingKeepsTheVersion) {
  const Json created = Created(kConfigMap, ConfigMap("same"));

  const auto updated = writer().Update(kConfigMap, created);
  const auto patched = writer().Patch(kConfigMap, KeyOf(created), {{"data", {{"key", "value"}}}});

  ASSERT_TRUE(updated.ok() && patched.ok());
  EXPECT_EQ(ResourceVersionOf(*updated), ResourceVersionOf(created));
  EXPECT_EQ(ResourceVersionOf(*patched), ResourceVersionOf(created));
}

TEST_P(KubeClientContract, GenerationGrowsWithTheSpecOnly) {
  const Json job = Created(kTrainingJob, Job("generations"));
  const ObjectKey key = KeyOf(job);

  const auto labelled =
      writer().Patch(kTrainingJob, key, {{"metadata", {{"labels", {{"a", "b"}}}}}});
  const auto reported =
      writer().PatchStatus(kTrainingJob, key, {{"status", {{"state", "Running"}}}});
  const auto respecified = writer().Patch(kTrainingJob, key, WorkersPatch(3));

  ASSERT_TRUE(labelled.ok() && reported.ok() && respecified.ok());
  EXPECT_EQ(GenerationOf(*labelled), 1);
  EXPECT_EQ(GenerationOf(*reported), 1);
  EXPECT_EQ(GenerationOf(*respecified), 2);
}

TEST_P(KubeClientContract, ACheckpointIsAskedForByAnAnnotationThatLeavesTheSpecAsItIs) {
  Json wanted = Job("saved");
  wanted["metadata"]["annotations"] = {{"team", "vision"}};
  const Json job = Created(kTrainingJob, wanted);
  const Json patch = spec::CheckpointRequestPatch(job, absl::FromUnixSeconds(1'800'000'000));

  const auto asked = writer().Patch(kTrainingJob, KeyOf(job), patch);

  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(spec::CheckpointRequestOf(*asked), "2027-01-15T08:00:00.000000000Z");
  EXPECT_EQ(spec::CheckpointRequestOf(Read(kTrainingJob, "saved")),
            spec::CheckpointRequestOf(*asked));
  EXPECT_EQ(AnnotationOf(*asked, "team"), "vision");
  EXPECT_EQ(GenerationOf(*asked), GenerationOf(job));
  Json of_another = patch;
  of_another["metadata"]["uid"] = "2d0d9f0e-0000-4000-8000-000000000000";
  EXPECT_TRUE(absl::IsAborted(writer().Patch(kTrainingJob, KeyOf(job), of_another).status()));
}

TEST_P(KubeClientContract, TheStatusIsWrittenByItsOwnDoorOnly) {
  Json wanted = Job("status");
  wanted["status"] = {{"state", "Succeeded"}};
  Json job = Created(kTrainingJob, wanted);
  EXPECT_TRUE(StringAt(job, "/status/state").empty()) << "a create brings no status";

  job["status"]["state"] = "Running";
  job["spec"]["replicaSpecs"]["worker"]["replicas"] = 7;
  auto reported = writer().UpdateStatus(kTrainingJob, job);
  ASSERT_TRUE(reported.ok()) << reported.status();
  EXPECT_EQ(StringAt(*reported, "/status/state"), "Running");
  EXPECT_EQ(IntAt(*reported, "/spec/replicaSpecs/worker/replicas"), 2);

  (*reported)["status"]["state"] = "Failed";
  (*reported)["spec"]["replicaSpecs"]["worker"]["replicas"] = 5;
  const auto updated = writer().Update(kTrainingJob, *reported);
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(StringAt(*updated, "/status/state"), "Running");
  EXPECT_EQ(IntAt(*updated, "/spec/replicaSpecs/worker/replicas"), 5);
}

TEST_P(KubeClientContract, AStatusUpdateOfAnOldVersionIsAConflict) {
  Json job = Created(kTrainingJob, Job("status-race"));
  ASSERT_TRUE(writer().Patch(kTrainingJob, KeyOf(job), WorkersPatch(4)).ok());

  job["status"]["state"] = "Running";

  EXPECT_TRUE(absl::IsAborted(writer().UpdateStatus(kTrainingJob, job).status()));
}

TEST_P(KubeClientContract, AKindWithoutAStatusHasNoDoorToIt) {
  const Json object = Created(kConfigMap, ConfigMap("no-status"));

  EXPECT_TRUE(absl::IsNotFound(writer().UpdateStatus(kConfigMap, object).status()));
  EXPECT_TRUE(absl::IsNotFound(reader().GetScale(kConfigMap, KeyOf(object)).status()));
}

TEST_P(KubeClientContract, APatchMergesRemovesAndReplacesLists) {
  Json wanted = ConfigMap("patched");
  wanted["data"] = {{"a", "1"}, {"b", "2"}};
  const Json created = Created(kConfigMap, wanted);

  const auto patched =
      writer().Patch(kConfigMap, KeyOf(created), {{"data", {{"a", nullptr}, {"c", "3"}}}});

  ASSERT_TRUE(patched.ok()) << patched.status();
  EXPECT_EQ((*patched)["data"], (Json{{"b", "2"}, {"c", "3"}}));
}

TEST_P(KubeClientContract, AResourceVersionInAPatchIsAPrecondition) {
  const Json created = Created(kConfigMap, ConfigMap("conditional"));
  const ObjectKey key = KeyOf(created);
  Json patch = {{"metadata", {{"resourceVersion", ResourceVersionOf(created)}}},
                {"data", {{"key", "new"}}}};

  EXPECT_TRUE(writer().Patch(kConfigMap, key, patch).ok());
  patch["data"]["key"] = "newer";
  EXPECT_TRUE(absl::IsAborted(writer().Patch(kConfigMap, key, patch).status()));

  EXPECT_EQ(StringAt(Read(kConfigMap, "conditional"), "/data/key"), "new");
}

TEST_P(KubeClientContract, AUidInAPatchIsAPrecondition) {
  const Json created = Created(kConfigMap, ConfigMap("identified"));
  const ObjectKey key = KeyOf(created);
  Json patch = {{"metadata", {{"uid", "2d0d9f0e-0000-4000-8000-000000000000"}}},
                {"data", {{"key", "new"}}}};

  EXPECT_TRUE(absl::IsAborted(writer().Patch(kConfigMap, key, patch).status()));
  EXPECT_EQ(StringAt(Read(kConfigMap, "identified"), "/data/key"), "value");
  patch["metadata"]["uid"] = UidOf(created);
  EXPECT_TRUE(writer().Patch(kConfigMap, key, patch).ok());
}

TEST_P(KubeClientContract, AnImmutableConfigMapStaysAsItIs) {
  Json wanted = ConfigMap("frozen");
  wanted["immutable"] = true;
  const Json created = Created(kConfigMap, wanted);
  const ObjectKey key = KeyOf(created);

  EXPECT_TRUE(absl::IsInvalidArgument(
      writer().Patch(kConfigMap, key, {{"data", {{"key", "new"}}}}).status()));
  EXPECT_TRUE(writer().Patch(kConfigMap, key, {{"metadata", {{"labels", {{"a", "b"}}}}}}).ok());
}

TEST_P(KubeClientContract, AnObjectWithoutFinalizersIsGoneAtOnce) {
  const Json created = Created(kConfigMap, ConfigMap("plain"));

  EXPECT_TRUE(writer().Delete(kConfigMap, KeyOf(created), {}).ok());

  EXPECT_TRUE(absl::IsNotFound(reader().Get(kConfigMap, KeyOf(created)).status()));
}

TEST_P(KubeClientContract, ADeleteWithAnotherUidOrVersionIsAConflict) {
  const Json created = Created(kConfigMap, ConfigMap("guarded"));
  const ObjectKey key = KeyOf(created);

  EXPECT_TRUE(absl::IsAborted(writer().Delete(kConfigMap, key, {"other", "", {}}).status()));
  EXPECT_TRUE(absl::IsAborted(writer().Delete(kConfigMap, key, {"", "1", {}}).status()));
  EXPECT_TRUE(writer().Delete(kConfigMap, key, {UidOf(created), "", {}}).ok());
}

TEST_P(KubeClientContract, AFinalizerHoldsTheObjectUntilItIsTakenOff) {
  Json wanted = Job("held");
  wanted["metadata"]["finalizers"] = {"starling.dev/test"};
  const Json created = Created(kTrainingJob, wanted);
  const ObjectKey key = KeyOf(created);

  ASSERT_TRUE(writer().Delete(kTrainingJob, key, {}).ok());
  Json dying = Read(kTrainingJob, "held");
  EXPECT_TRUE(IsBeingDeleted(dying));
  const std::string since = StringAt(dying, "/metadata/deletionTimestamp");

  ASSERT_TRUE(writer().Delete(kTrainingJob, key, {}).ok()) << "asking twice is no error";
  dying = Read(kTrainingJob, "held");
  EXPECT_EQ(StringAt(dying, "/metadata/deletionTimestamp"), since);

  Json more = dying;
  more["metadata"]["finalizers"].push_back("starling.dev/another");
  EXPECT_TRUE(absl::IsInvalidArgument(writer().Update(kTrainingJob, more).status()));

  dying["metadata"]["finalizers"] = Json::array();
  EXPECT_TRUE(writer().Update(kTrainingJob, dying).ok());
  EXPECT_TRUE(absl::IsNotFound(reader().Get(kTrainingJob, key).status()));
}

TEST_P(KubeClientContract, APodThatNeverStartedIsGoneAtOnce) {
  const Json pod = Created(kPod, Pod("unbound"));

  EXPECT_TRUE(writer().Delete(kPod, KeyOf(pod), {}).ok());

  EXPECT_TRUE(absl::IsNotFound(reader().Get(kPod, KeyOf(pod)).status()));
}

TEST_P(KubeClientContract, ARunningPodWaitsForItsKubelet) {
  Json wanted = Pod("running");
  wanted["spec"]["nodeName"] = "node-1";
  const Json pod = Created(kPod, wanted);
  const ObjectKey key = KeyOf(pod);
  ASSERT_TRUE(writer().PatchStatus(kPod, key, {{"status", {{"phase", "Running"}}}}).ok());

  ASSERT_TRUE(writer().Delete(kPod, key, {"", "", 20}).ok());
  Json dying = Read(kPod, "running");
  EXPECT_TRUE(IsBeingDeleted(dying));
  EXPECT_EQ(IntAt(dying, "/metadata/deletionGracePeriodSeconds"), 20);

  ASSERT_TRUE(writer().Delete(kPod, key, {"", "", 5}).ok());
  dying = Read(kPod, "running");
  EXPECT_EQ(IntAt(dying, "/metadata/deletionGracePeriodSeconds"), 5) << "it can be shortened";
  ASSERT_TRUE(writer().Delete(kPod, key, {"", "", 60}).ok());
  EXPECT_EQ(Read(kPod, "running"), dying) << "but not lengthened";

  ASSERT_TRUE(writer().Delete(kPod, key, {UidOf(pod), "", 0}).ok());
  EXPECT_TRUE(absl::IsNotFound(reader().Get(kPod, key).status()));
}

TEST_P(KubeClientContract, APodThatHasEndedIsGoneAtOnce) {
  Json wanted = Pod("ended");
  wanted["spec"]["nodeName"] = "node-1";
  const ObjectKey key = KeyOf(Created(kPod, wanted));
  ASSERT_TRUE(writer().PatchStatus(kPod, key, {{"status", {{"phase", "Failed"}}}}).ok());

  ASSERT_TRUE(writer().Delete(kPod, key, {}).ok());

  EXPECT_TRUE(absl::IsNotFound(reader().Get(kPod, key).status()));
}

TEST_P(KubeClientContract, APodsSpecStays) {
  const ObjectKey key = KeyOf(Created(kPod, Pod("rigid")));

  EXPECT_TRUE(absl::IsInvalidArgument(
      writer().Patch(kPod, key, {{"spec", {{"restartPolicy", "Always"}}}}).status()));
}

TEST_P(KubeClientContract, ScaleIsAViewOfTheWorkers) {
  Json job = Created(kTrainingJob, Job("scaled"));
  job["status"] = {{"replicas", 2}, {"selector", "role=worker"}};
  ASSERT_TRUE(writer().UpdateStatus(kTrainingJob, job).ok());

  auto scale = reader().GetScale(kTrainingJob, KeyOf(job));
  ASSERT_TRUE(scale.ok()) << scale.status();
  EXPECT_EQ(StringAt(*scale, "/kind"), "Scale");
  EXPECT_EQ(IntAt(*scale, "/spec/replicas"), 2);
  EXPECT_EQ(IntAt(*scale, "/status/replicas"), 2);
  EXPECT_EQ(StringAt(*scale, "/status/selector"), "role=worker");

  (*scale)["spec"]["replicas"] = 5;
  ASSERT_TRUE(writer().UpdateScale(kTrainingJob, *scale).ok());
  const Json scaled = Read(kTrainingJob, "scaled");
  EXPECT_EQ(IntAt(scaled, "/spec/replicaSpecs/worker/replicas"), 5);
  EXPECT_EQ(GenerationOf(scaled), 2);

  (*scale)["spec"]["replicas"] = 6;
  EXPECT_TRUE(absl::IsAborted(writer().UpdateScale(kTrainingJob, *scale).status()))
      << "its version is old by now";
  (*scale)["metadata"].erase("resourceVersion");
  (*scale)["spec"]["replicas"] = -1;
  EXPECT_TRUE(absl::IsInvalidArgument(writer().UpdateScale(kTrainingJob, *scale).status()));
}

TEST_P(KubeClientContract, OnlyOneOwnerMayBeTheController) {
  const Json first = Created(kConfigMap, ConfigMap("two-owners-1"));
  const Json second = Created(kConfigMap, ConfigMap("two-owners-2"));
  Json child = ConfigMap("two-owners-child");
  child["metadata"]["ownerReferences"] = {ControllerReference(first), ControllerReference(second)};

  EXPECT_TRUE(absl::IsInvalidArgument(writer().Create(kConfigMap, child).status()));
}

TEST_P(KubeClientContract, WhatAnObjectOwnsFollowsIt) {
  const std::vector<ResourceKind> kinds = {kConfigMap, kTrainingJob};
  const Json owner = Created(kTrainingJob, Job("owner"));
  Json child = ConfigMap("owned");
  child["metadata"]["ownerReferences"] = {ControllerReference(owner)};
  Created(kConfigMap, child);
  Created(kConfigMap, ConfigMap("not-owned"));

  ASSERT_TRUE(CollectGarbage(writer(), kinds).ok());
  EXPECT_TRUE(reader().Get(kConfigMap, {"default", "owned"}).ok()) << "its owner lives";

  ASSERT_TRUE(writer().Delete(kTrainingJob, KeyOf(owner), {}).ok());
  Created(kTrainingJob, Job("owner"));  // of the same name, but not the owner
  ASSERT_TRUE(CollectGarbage(writer(), kinds).ok());

  EXPECT_TRUE(absl::IsNotFound(reader().Get(kConfigMap, {"default", "owned"}).status()));
  EXPECT_TRUE(reader().Get(kConfigMap, {"default", "not-owned"}).ok());
}

}  // namespace starling::kube
