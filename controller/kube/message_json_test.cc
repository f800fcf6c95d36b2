// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/message_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "controller/kube/messages.h"

namespace starling::kube {
namespace {

TEST(MessageJson, ScalarsOfTheApiAreScalars) {
  const Json json = Json::parse(R"({
    "metadata": {"name": "p", "namespace": "n", "creationTimestamp": "2026-11-21T10:00:00Z",
                 "labels": {"a": "b"},
                 "ownerReferences": [{"kind": "TrainingJob", "uid": "o", "controller": false}]},
    "spec": {"containers": [{"name": "trainer",
                             "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}]},
    "status": {"podIP": "10.0.0.1"}})");
  const auto pod = FromJson<kubernetes::Pod>(json);
  EXPECT_EQ(pod.metadata().ns(), "n");
  EXPECT_EQ(pod.metadata().creation_timestamp().seconds(), 1795255200);
  EXPECT_EQ(pod.spec().containers(0).resources().limits().at("memory").string(), "1Gi");
  EXPECT_TRUE(pod.metadata().owner_references(0).has_controller());
  EXPECT_EQ(ToJson(pod), json);

  const Json lease = {{"spec", {{"renewTime", "2026-11-21T10:00:00.000001Z"}}}};
  EXPECT_EQ(ToJson(FromJson<kubernetes::Lease>(lease)), lease);
  for (const Json& limit : {Json(1), Json("50%")}) {
    const Json budget = {{"spec", {{"maxUnavailable", limit}}}};
    EXPECT_EQ(ToJson(FromJson<kubernetes::PodDisruptionBudget>(budget)), budget);
  }
  const auto secret = FromJson<kubernetes::Secret>({{"data", {{"k", "AP8="}}}});
  EXPECT_EQ(secret.data().at("k"), std::string("\0\xff", 2));
  EXPECT_EQ(ToJson(secret), (Json{{"data", {{"k", "AP8="}}}}));
}

TEST(MessageJson, ThatAContainerEndedWellIsToldByAZero) {
  const Json json = {
      {"status",
       {{"containerStatuses",
         Json::array({{{"name", "t"}, {"state", {{"terminated", {{"exitCode", 0}}}}}}})}}}};
  const auto pod = FromJson<kubernetes::Pod>(json);
  EXPECT_TRUE(pod.status().container_statuses(0).state().has_terminated());
  EXPECT_EQ(ToJson(pod), json);
}

TEST(MessageJson, ATimeThatWasNeverSetIsNoTime) {
  kubernetes::Pod pod;
  pod.mutable_metadata()->mutable_creation_timestamp();
  EXPECT_EQ(ToJson(pod), (Json{{"metadata", Json::object()}}));
  EXPECT_FALSE(FromJson<kubernetes::Pod>({{"metadata", {{"creationTimestamp", nullptr}}}})
                   .metadata()
                   .has_creation_timestamp());
  EXPECT_FALSE(
      IsBeingDeleted(FromJson<kubernetes::Pod>({{"metadata", {{"deletionTimestamp", "soon"}}}})));
}

TEST(MessageJson, WhateverAnObjectIsNoneOfItMinds) {
  for (const char* text :
       {"null", "[]", "{}", "3", R"({"metadata": 1, "spec": [], "status": "x"})",
        R"({"metadata": {"labels": [], "ownerReferences": [1, null], "finalizers": [1, "f"],
                         "generation": "x", "annotations": {"a": 1, "b": "c"}},
            "spec": {"containers": 1},
            "status": {"conditions": [null, "x"],
                       "containerStatuses": [{"state": {"terminated": {"exitCode": 1e30}}},
                                             {"state": {"terminated": {"exitCode": 4294967296}}}]}})"}) {
    const auto pod = FromJson<kubernetes::Pod>(Json::parse(text));
    EXPECT_LE(pod.metadata().finalizers_size(), 1);
    EXPECT_LE(pod.metadata().annotations_size(), 1);
    for (const auto& status : pod.status().container_statuses()) {
      EXPECT_FALSE(status.state().terminated().has_exit_code());
    }
  }
}

TEST(Messages, EveryKindHasItsOwn) {
  for (const ResourceKind& kind : AllKinds()) {
    const Message* prototype = PrototypeOf(kind);
    if (prototype == nullptr) continue;
    EXPECT_TRUE(KindOf(*prototype) == kind);
    std::unique_ptr<Message> object = NewMessage(kind);
    MutableMetadataOf(*object).set_name("n");
    EXPECT_EQ(NameOf(*object), "n") << kind.plural;
  }
  EXPECT_EQ(PrototypeOf(kTrainingJob), nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(RequireMessages(kTrainingJob)));
}

}  // namespace
}  // namespace starling::kube
