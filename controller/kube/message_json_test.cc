// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/message_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

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

TEST(MessageJson, NumbersAreReadThatFit) {
  const auto exit_code = [](const Json& number) {
    const Json terminated = {{"terminated", {{"exitCode", number}}}};
    const auto pod = FromJson<kubernetes::Pod>(
        {{"status", {{"containerStatuses", Json::array({{{"state", terminated}}})}}}});
    const auto& read = pod.status().container_statuses(0).state().terminated();
    return read.has_exit_code() ? std::optional<int>(read.exit_code()) : std::nullopt;
  };
  EXPECT_EQ(exit_code(2147483647), 2147483647);
  EXPECT_EQ(exit_code(-2147483648LL), -2147483647 - 1);
  for (const Json& none : {Json(2147483648LL), Json(-2147483649LL), Json(1.5), Json("1")}) {
    EXPECT_EQ(exit_code(none), std::nullopt) << none;
  }
  const auto read = [](const Json& metadata) {
    return FromJson<kubernetes::Pod>({{"metadata", metadata}}).metadata();
  };
  EXPECT_EQ(read({{"generation", 1LL << 40U}}).generation(), 1LL << 40U);
  for (const Json& none : {Json(1.5), Json("7"), Json(true)}) {
    EXPECT_FALSE(read({{"generation", none}}).has_generation()) << none;
  }
}

TEST(MessageJson, QuantitiesAreTextOrNumbers) {
  const Json limits = {{"cpu", 2}, {"memory", "1Gi"}, {"a", 1.5}, {"b", true}, {"c", {{"d", 1}}}};
  const Json container = {{"resources", {{"limits", limits}}}};
  const auto pod =
      FromJson<kubernetes::Pod>({{"spec", {{"containers", Json::array({container})}}}});
  const auto& read = pod.spec().containers(0).resources().limits();
  EXPECT_EQ(read.size(), 3U);
  EXPECT_EQ(read.at("cpu").string(), "2");
  EXPECT_EQ(read.at("memory").string(), "1Gi");
  EXPECT_EQ(read.at("a").string(), "1.5");
}

TEST(MessageJson, OnlyWhatIsOfItsFieldsKindIsRead) {
  const auto metadata =
      FromJson<kubernetes::Pod>(
          {{"metadata",
            {{"finalizers", {1, "f"}},
             {"annotations", {{"a", 1}, {"b", "c"}}},
             {"labels", Json::array({"l"})},
             {"ownerReferences", {1, nullptr, {{"uid", "o"}, {"controller", "true"}}}}}}})
          .metadata();
  ASSERT_EQ(metadata.finalizers_size(), 1);
  EXPECT_EQ(metadata.finalizers(0), "f");
  EXPECT_EQ(metadata.annotations().size(), 1U);
  EXPECT_EQ(metadata.annotations().at("b"), "c");
  EXPECT_EQ(metadata.labels_size(), 0);
  ASSERT_EQ(metadata.owner_references_size(), 1);
  EXPECT_EQ(metadata.owner_references(0).uid(), "o");
  EXPECT_FALSE(metadata.owner_references(0).has_controller());
  const auto secret = FromJson<kubernetes::Secret>({{"data", {{"a", "!"}, {"b", "eA=="}}}});
  EXPECT_EQ(secret.data().size(), 1U);
  EXPECT_EQ(secret.data().at("b"), "x");
  for (const Json& none : {Json(1), Json("x"), Json(), Json::array()}) {
    EXPECT_FALSE(FromJson<kubernetes::Pod>({{"metadata", none}}).has_metadata()) << none;
  }
  EXPECT_TRUE(FromJson<kubernetes::Pod>({{"metadata", Json::object()}}).has_metadata());
  for (const Json& none : {Json(true), Json(1.5), Json((1LL << 32U) + 1)}) {
    EXPECT_FALSE(FromJson<kubernetes::PodDisruptionBudget>({{"spec", {{"maxUnavailable", none}}}})
                     .spec()
                     .has_max_unavailable());
  }
}

TEST(MessageJson, WhatIsAScalarInTheApiIsNotReadAsTheMessageThatItIsHere) {
  EXPECT_FALSE(FromJson<kubernetes::Time>({{"seconds", 5}}).has_seconds());
  EXPECT_FALSE(FromJson<kubernetes::IntOrString>({{"intVal", 5}}).has_int_val());
  EXPECT_FALSE(FromJson<kubernetes::Quantity>({{"string", "1"}}).has_string());
  EXPECT_TRUE(FromJson<kubernetes::IntOrString>(Json(5)).has_type());
}

TEST(MessageJson, ListsAreListsAndWrittenWhole) {
  const Json json = {{"metadata", {{"finalizers", {"f", "g"}}}}};
  EXPECT_EQ(ToJson(FromJson<kubernetes::Pod>(json)), json);
  for (const Json& none : {Json("f"), Json{{"a", "f"}}}) {
    const Json object = {{"metadata", {{"finalizers", none}}}};
    EXPECT_EQ(FromJson<kubernetes::Pod>(object).metadata().finalizers_size(), 0) << none;
  }
}

TEST(MessageJson, AMessageThatIsReadAnewForgetsWhatItWas) {
  kubernetes::Pod pod;
  pod.mutable_metadata()->set_name("before");
  FromJson(Json::object(), pod);
  EXPECT_FALSE(pod.has_metadata());
}

TEST(MessageJson, AnObjectSaysOfWhichKindItIs) {
  EXPECT_EQ(ToJson(kLease, *FromJson(kLease, {{"metadata", {{"name", "l"}}}})),
            (Json{{"apiVersion", "coordination.k8s.io/v1"},
                  {"kind", "Lease"},
                  {"metadata", {{"name", "l"}}}}));
}

TEST(Messages, TimesKeepTheirNanoseconds) {
  for (const absl::Time time :
       {absl::FromUnixSeconds(7) + absl::Nanoseconds(5), absl::FromUnixSeconds(-7)}) {
    kubernetes::Time stamp;
    SetTime(&stamp, time);
    EXPECT_EQ(ToTime(stamp), time);
    kubernetes::MicroTime micro;
    SetTime(&micro, time);
    EXPECT_EQ(ToTime(micro), time);
  }
}

TEST(Messages, LabelsAnnotationsAndOwnersAreFoundByName) {
  kubernetes::Pod pod;
  auto& metadata = *pod.mutable_metadata();
  (*metadata.mutable_labels())["a"] = "1";
  (*metadata.mutable_annotations())["b"] = "2";
  EXPECT_EQ(LabelOf(pod, "a"), "1");
  EXPECT_EQ(LabelOf(pod, "b"), "");
  EXPECT_EQ(AnnotationOf(pod, "b"), "2");
  EXPECT_EQ(AnnotationOf(pod, "a"), "");
  metadata.add_owner_references()->set_uid("u");
  EXPECT_EQ(ControllerUidOf(pod), "");
  auto& owner = *metadata.add_owner_references();
  owner.set_uid("v");
  owner.set_controller(true);
  EXPECT_EQ(ControllerUidOf(pod), "v");
  EXPECT_FALSE(IsBeingDeleted(pod));
  metadata.mutable_deletion_timestamp();
  EXPECT_TRUE(IsBeingDeleted(pod));
}

TEST(Messages, ConditionsAreTrueWhereTheirStatusSaysSo) {
  kubernetes::Pod pod;
  EXPECT_FALSE(IsConditionTrue(pod, "Ready"));
  for (const auto& [type, status] : {std::pair("Other", "True"), std::pair("Ready", "False")}) {
    auto& condition = *pod.mutable_status()->add_conditions();
    condition.set_type(type);
    condition.set_status(status);
  }
  EXPECT_FALSE(IsConditionTrue(pod, "Ready"));
  EXPECT_TRUE(IsConditionTrue(pod, "Other"));
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
