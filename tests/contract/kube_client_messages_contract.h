// SPDX-License-Identifier: Apache-2.0
// The part of the contract about messages: that they tell what the JSON of the same object tells.
//
// Beside an API server one of the two comes as JSON and the other as protobuf, so field numbers and
// frames are held against what the server itself says.
#pragma once

#include "controller/kube/message_json.h"
#include "controller/kube/messages.h"
#include "tests/contract/kube_client_contract.h"

namespace starling::kube {

class KubeClientMessagesContract : public KubeClientContract {
 protected:
  // An object of each kind that has messages, with every field that a writer may set.
  static std::vector<std::pair<ResourceKind, Json>> Objects() {
    const Json owner = {{"apiVersion", "v1"},    {"kind", "ConfigMap"},
                        {"name", "their-owner"}, {"uid", "11111111-2222-3333-4444-555555555555"},
                        {"controller", true},    {"blockOwnerDeletion", false}};
    const auto metadata = [&](const char* name) {
      return Json{{"name", name},
                  {"namespace", "default"},
                  {"labels", {{"suite", "messages"}, {"starling.dev/job", "j"}}},
                  {"annotations", {{"starling.dev/note", "grüße \"quoted\""}}},
                  {"finalizers", Json::array({"starling.dev/test"})},
                  {"ownerReferences", Json::array({owner})}};
    };
    Json pod = Pod("m-pod");
    pod["metadata"] = metadata("m-pod");
    pod["metadata"].erase("finalizers");
    pod["spec"]["nodeName"] = "node-of-messages";
    pod["spec"]["containers"][0]["resources"]["limits"] = {{"memory", "64Mi"}, {"cpu", "1500m"}};
    Json node_meta = metadata("m-node");
    for (const char* part : {"namespace", "ownerReferences", "finalizers"}) node_meta.erase(part);
    return {
        {kPod, pod},
        {kConfigMap,
         {{"metadata", metadata("m-config")},
          {"data", {{"a", "1"}, {"b", ""}}},
          {"immutable", true}}},
        {kSecret,
         {{"metadata", metadata("m-secret")}, {"type", "Opaque"}, {"data", {{"k", "AP/+AQ=="}}}}},
        {kService,
         {{"metadata", metadata("m-service")},
          {"spec",
           {{"clusterIP", "None"},
            {"ipFamilyPolicy", "PreferDualStack"},
            {"publishNotReadyAddresses", true},
            {"selector", {{"starling.dev/job", "j"}}},
            {"ports",
             Json::array({{{"name", "metrics"}, {"port", 9090}, {"protocol", "TCP"}}})}}}}},
        {kEndpointSlice,
         {{"metadata", metadata("m-slice")},
          {"addressType", "IPv4"},
          {"endpoints",
           Json::array(
               {{{"addresses", Json::array({"10.0.0.1"})},
                 {"conditions", {{"ready", true}}},
                 {"hostname", "m-pod"},
                 {"nodeName", "node1"},
                 {"targetRef",
                  {{"kind", "Pod"}, {"namespace", "default"}, {"name", "m-pod"}, {"uid", "1"}}}}})},
          {"ports", Json::array({{{"name", "metrics"}, {"port", 9090}, {"protocol", "TCP"}}})}}},
        {kPodDisruptionBudget,
         {{"metadata", metadata("m-budget")},
          {"spec",
           {{"maxUnavailable", "50%"},
            {"unhealthyPodEvictionPolicy", "AlwaysAllow"},
            {"selector", {{"matchLabels", {{"starling.dev/job", "j"}}}}}}}}},
        {kEvent,
         {{"metadata", metadata("m-event")},
          {"eventTime", "2026-11-21T10:00:00.123456Z"},
          {"series", {{"count", 2}, {"lastObservedTime", "2026-11-21T10:00:01.000001Z"}}},
          {"regarding",
           {{"apiVersion", "v1"}, {"kind", "Pod"}, {"namespace", "default"}, {"name", "m-pod"}}},
          {"type", "Normal"},
          {"reason", "Tested"},
          {"action", "Test"},
          {"note", "a note"},
          {"reportingController", "starling.dev/test"},
          {"reportingInstance", "here"}}},
        {kLease,
         {{"metadata", metadata("m-lease")},
          {"spec",
           {{"holderIdentity", "me"},
            {"leaseDurationSeconds", 15},
            {"leaseTransitions", 3},
            {"acquireTime", "2026-11-21T10:00:00.000001Z"},
            {"renewTime", "2026-11-21T10:00:02.500000Z"}}}}}};
  }

  // What a message can hold of an object, as JSON.
  static Json Part(const ResourceKind& kind, const Json& object) {
    return ToJson(*FromJson(kind, object));
  }

  // Without values that are zero or empty: of those an API server writes some in protobuf that it
  // leaves out of JSON.
  static Json Said(const Json& json) {
    if (!json.is_structured()) return json;
    Json said = json.is_array() ? Json::array() : Json::object();
    for (const auto& [name, value] : json.items()) {
      Json part = Said(value);
      if (json.is_array()) {
        said.push_back(std::move(part));
      } else if (!part.empty() && part != "" && part != 0 && part != false) {
        said[name] = std::move(part);
      }
    }
    return said;
  }

  void Release(const ResourceKind& kind, const ObjectKey& key) {
    EXPECT_TRUE(writer().Patch(kind, key, {{"metadata", {{"finalizers", nullptr}}}}).ok());
    EXPECT_TRUE(writer().Delete(kind, key, {"", "", 0}).ok());
  }
};

TEST_P(KubeClientMessagesContract, AMessageTellsWhatTheJsonTells) {
  for (const auto& [kind, object] : Objects()) {
    const Json created = Created(kind, object);
    const ObjectKey key = KeyOf(created);
    const auto message = reader().GetMessage(kind, key);
    ASSERT_TRUE(message.ok()) << kind.plural << ": " << message.status();
    EXPECT_EQ(Said(ToJson(**message)), Said(Part(kind, *reader().Get(kind, key)))) << kind.plural;
    // That nothing of it was lost on the way in either.
    Json wanted = Said(Part(kind, object));
    wanted.merge_patch(Said(ToJson(**message)));
    EXPECT_EQ(wanted, Said(ToJson(**message))) << kind.plural;
    Release(kind, key);
  }
}

TEST_P(KubeClientMessagesContract, WhatIsCreatedFromAMessageIsWhatItSays) {
  for (const auto& [kind, object] : Objects()) {
    const auto made = kind == kPod ? writer().CreateFromJson(kind, object)
                                   : writer().CreateMessage(kind, *FromJson(kind, object));
    ASSERT_TRUE(made.ok()) << kind.plural << ": " << made.status();
    EXPECT_FALSE(UidOf(**made).empty());
    const ObjectKey key = KeyOf(**made);
    const Json there = Said(Part(kind, *reader().Get(kind, key)));
    EXPECT_EQ(Said(ToJson(**made)), there) << kind.plural;
    Json wanted = there;
    wanted.merge_patch(Said(Part(kind, object)));
    EXPECT_EQ(wanted, there) << kind.plural << ": what was said is all there";
    Release(kind, key);
  }
}

TEST_P(KubeClientMessagesContract, AStatusIsReadWhole) {
  const ObjectKey key = KeyOf(Created(kPod, Pod("m-status")));
  const Json ended = {{"exitCode", 137},
                      {"signal", 9},
                      {"reason", "OOMKilled"},
                      {"message", "last words"},
                      {"finishedAt", "2026-11-21T10:05:01Z"}};
  const Json status = {
      {"phase", "Failed"},
      {"reason", "Evicted"},
      {"message", "the node was low"},
      {"podIP", "10.0.0.1"},
      {"podIPs", Json::array({{{"ip", "10.0.0.1"}}})},
      {"startTime", "2026-11-21T10:00:00Z"},
      {"conditions", Json::array({{{"type", "DisruptionTarget"},
                                   {"status", "True"},
                                   {"reason", "PreemptionByScheduler"},
                                   {"message", "made room"},
                                   {"lastTransitionTime", "2026-11-21T10:00:01Z"}}})},
      {"initContainerStatuses",
       Json::array({{{"name", "tools"},
                     {"image", "i"},
                     {"imageID", ""},
                     {"ready", false},
                     {"restartCount", 0},
                     {"state", {{"waiting", {{"reason", "ErrImagePull"}, {"message", "no"}}}}}}})},
      {"containerStatuses", Json::array({{{"name", "trainer"},
                                          {"image", "i"},
                                          {"imageID", ""},
                                          {"ready", false},
                                          {"restartCount", 1},
                                          {"state", {{"terminated", ended}}}}})}};
  ASSERT_TRUE(writer().PatchStatus(kPod, key, {{"status", status}}).ok());
  const auto pod = reader().GetMessage(kPod, key);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(Said(ToJson(**pod)["status"]), Said(Part(kPod, {{"status", status}})["status"]));
}

TEST_P(KubeClientMessagesContract, ListsAndPagesOfMessagesAreThoseOfJson) {
  for (const char* name : {"m-page-1", "m-page-2", "m-page-3"}) {
    Created(kConfigMap, ConfigMap(name, {{"suite", "m-page"}}));
  }
  ListOptions options{{"suite=m-page", ""}, 2, ""};
  const auto first = reader().ListMessages(kConfigMap, "default", options);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->items.size(), 2U);
  EXPECT_EQ(NameOf(*first->items[1]), "m-page-2");
  EXPECT_FALSE(first->resource_version.empty());
  options.continue_token = first->continue_token;
  const auto second = reader().ListMessages(kConfigMap, "default", options);
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(second->items.size(), 1U);
  EXPECT_TRUE(second->continue_token.empty());
  EXPECT_TRUE(ReadAll<kubernetes::Lease>(reader(), "", {"no=such", ""})->empty());
}

TEST_P(KubeClientMessagesContract, AWatchOfMessagesTellsOfEachChange) {
  const std::string version = VersionNow(kConfigMap);
  const Json made = Created(kConfigMap, ConfigMap("m-seen", {{"suite", "m-watch"}}));
  // More than one piece of any stream.
  const std::string much(200'000, 'x');
  ASSERT_TRUE(writer().Patch(kConfigMap, KeyOf(made), {{"data", {{"key", much}}}}).ok());
  ASSERT_TRUE(writer().Delete(kConfigMap, KeyOf(made), {}).ok());

  const auto watch =
      reader().WatchMessages(kConfigMap, "default", {{"suite=m-watch", ""}, version});
  ASSERT_TRUE(watch.ok()) << watch.status();
  std::vector<MessageEvent> events;
  while (events.size() < 3) {
    auto event = (*watch)->Next(kPatience);
    ASSERT_TRUE(event.ok() && *event) << event.status();
    if ((*event)->type != WatchEventType::kBookmark) events.push_back(**event);
  }
  EXPECT_EQ(events[0].type, WatchEventType::kAdded);
  EXPECT_EQ(Said(ToJson(*events[0].object)), Said(Part(kConfigMap, made)));
  EXPECT_EQ(events[1].type, WatchEventType::kModified);
  EXPECT_EQ(static_cast<const kubernetes::ConfigMap&>(*events[1].object).data().at("key"), much);
  EXPECT_EQ(events[2].type, WatchEventType::kDeleted);
  EXPECT_EQ(UidOf(*events[2].object), UidOf(made));
}

TEST_P(KubeClientMessagesContract, RefusalsAreThoseOfJson) {
  Created(kConfigMap, ConfigMap("m-taken"));
  const auto config = FromJson<kubernetes::ConfigMap>(ConfigMap("m-taken"));
  EXPECT_TRUE(absl::IsAlreadyExists(writer().CreateMessage(kConfigMap, config).status()));
  const auto bad = FromJson<kubernetes::ConfigMap>(ConfigMap("Upper Case"));
  EXPECT_TRUE(absl::IsInvalidArgument(writer().CreateMessage(kConfigMap, bad).status()));
  EXPECT_TRUE(absl::IsNotFound(reader().GetMessage(kConfigMap, {"default", "nowhere"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      reader().ListMessages(kConfigMap, "default", {{"a b c", ""}, 0, ""}).status()));
  // TrainingJobs are JSON.
  EXPECT_TRUE(
      absl::IsInvalidArgument(reader().GetMessage(kTrainingJob, {"default", "any"}).status()));
}

TEST_P(KubeClientMessagesContract, ADeletionHasItsPreconditionsAndSaysWhoWent) {
  const Json made = Created(kConfigMap, ConfigMap("m-gone"));
  const ObjectKey key = KeyOf(made);
  EXPECT_TRUE(absl::IsAborted(writer().DeleteMessage(kConfigMap, key, {"other", "", {}}).status()));
  const auto gone = writer().DeleteMessage(kConfigMap, key, {UidOf(made), "", {}});
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_EQ(KeyOf(**gone), key);
  EXPECT_EQ(UidOf(**gone), UidOf(made));
  EXPECT_TRUE(absl::IsNotFound(writer().DeleteMessage(kConfigMap, key, {}).status()));
}

TEST_P(KubeClientMessagesContract, ADeletedPodHasItsGrace) {
  Json wanted = Pod("m-dying");
  wanted["spec"]["nodeName"] = "node-of-messages";
  const ObjectKey key = KeyOf(Created(kPod, wanted));
  ASSERT_TRUE(writer().PatchStatus(kPod, key, {{"status", {{"phase", "Running"}}}}).ok());
  const auto dying = writer().DeleteMessage(kPod, key, {"", "", 20});
  ASSERT_TRUE(dying.ok()) << dying.status();
  EXPECT_TRUE(IsBeingDeleted(**dying));
  EXPECT_EQ(MetadataOf(**dying).deletion_grace_period_seconds(), 20);
  EXPECT_TRUE(writer().DeleteMessage(kPod, key, {"", "", 0}).ok());
}

}  // namespace starling::kube
