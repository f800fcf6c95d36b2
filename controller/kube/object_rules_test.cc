// SPDX-License-Identifier: Apache-2.0
// The rules of the embedded store one by one; that an API server has them too is shown by
// tests/contract.
#include "controller/kube/object_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

Json Named(const std::string& name) {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", {{"name", name}, {"namespace", "team"}}}};
}

// What is wrong with an object; empty: nothing.
std::string Wrong(const Json& object, const ResourceKind& kind = kConfigMap,
                  const Json* old = nullptr) {
  const absl::Status status = CheckObject(kind, old, object);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(ObjectRules, NamesAreThoseOfHosts) {
  for (const std::string& name : {std::string("a"), std::string("0-a.b"), std::string(253, 'x')}) {
    EXPECT_EQ(Wrong(Named(name)), "") << name;
  }
  for (const std::string& name :
       {std::string(), std::string("A"), std::string("a_b"), std::string("-a"), std::string("a-"),
        std::string(".a"), std::string("a/b"), std::string(254, 'x')}) {
    EXPECT_THAT(Wrong(Named(name)), HasSubstr("metadata.name: must be given")) << name;
  }
  for (const std::string& ns : {std::string(), std::string("T"), std::string(64, 'x')}) {
    Json object = Named("a");
    object["metadata"]["namespace"] = ns;
    EXPECT_THAT(Wrong(object), HasSubstr("metadata.namespace")) << ns;
  }
  Json object = Named("a");
  object["metadata"]["namespace"] = std::string(63, 'x');
  EXPECT_EQ(Wrong(object), "");
  object["metadata"].erase("namespace");
  EXPECT_EQ(Wrong(object, kNode), "") << "it is of the whole cluster";
}

TEST(ObjectRules, MetadataIsOfItsForm) {
  const auto with = [](const char* field, const Json& value) {
    Json object = Named("a");
    object["metadata"][field] = value;
    return Wrong(object);
  };
  EXPECT_EQ(with("labels", {{"a", std::string(63, 'x')}}), "");
  EXPECT_THAT(with("labels", {{"a", std::string(64, 'x')}}), HasSubstr("at most 63 characters"));
  EXPECT_THAT(with("labels", {{"a", 1}}), HasSubstr("metadata.labels[a]: must be text"));
  EXPECT_THAT(with("labels", Json::array()), HasSubstr("metadata.labels: not a map"));
  EXPECT_EQ(with("annotations", {{"a", std::string(64, 'x')}}), "");
  EXPECT_THAT(with("annotations", {{"a", 1}}), HasSubstr("metadata.annotations[a]: must be text"));
  EXPECT_THAT(with("finalizers", {{"a", 1}}), HasSubstr("metadata.finalizers: not a list"));
  EXPECT_THAT(with("ownerReferences", "x"), HasSubstr("metadata.ownerReferences: not a list"));
  Json owner = {{"apiVersion", "v1"}, {"kind", "Pod"}, {"name", "p"}, {"uid", "u"}};
  EXPECT_EQ(with("ownerReferences", Json::array({owner, owner})), "");
  owner["controller"] = true;
  EXPECT_EQ(with("ownerReferences", Json::array({owner})), "");
  EXPECT_THAT(with("ownerReferences", Json::array({owner, owner})), HasSubstr("only one may be"));
  for (const char* field : {"apiVersion", "kind", "name", "uid"}) {
    Json lacking = owner;
    lacking.erase(field);
    EXPECT_THAT(with("ownerReferences", Json::array({owner, lacking})),
                HasSubstr(std::string("each needs ") + field));
  }
}

TEST(ObjectRules, LargestObjectIsThatOfAnApiServer) {
  Json object = Named("a");
  object["data"]["k"] = "";
  const std::size_t rest = object.dump().size();
  object["data"]["k"] = std::string(1'500'000 - rest, 'x');
  EXPECT_EQ(Wrong(object), "");
  object["data"]["k"] = std::string(1'500'001 - rest, 'x');
  EXPECT_THAT(Wrong(object), HasSubstr("larger than 1500000 bytes"));
}

TEST(ObjectRules, PodsMayBeBoundOnceAndFrozenObjectsStay) {
  Json pod = {{"metadata", {{"name", "p"}, {"namespace", "team"}}}, {"spec", {{"a", 1}}}};
  Json bound = pod;
  bound["spec"]["nodeName"] = "n";
  Json moved = pod;
  moved["spec"]["nodeName"] = "m";
  Json other = bound;
  other["spec"]["a"] = 2;
  EXPECT_EQ(Wrong(pod, kPod, &pod), "");
  EXPECT_EQ(Wrong(bound, kPod, &pod), "");
  EXPECT_EQ(Wrong(other, kPod), "") << "it is new";
  for (const auto& [from, to] : {std::pair(&bound, &moved), std::pair(&bound, &pod),
                                 std::pair(&pod, &other), std::pair(&bound, &other)}) {
    EXPECT_THAT(Wrong(*to, kPod, from), HasSubstr("may not be changed"));
  }
  Json frozen = Named("a");
  frozen["immutable"] = true;
  Json changed = frozen;
  changed["data"]["k"] = "v";
  EXPECT_THAT(Wrong(changed, kConfigMap, &frozen), HasSubstr("it is immutable"));
  EXPECT_THAT(Wrong(changed, kSecret, &frozen), HasSubstr("it is immutable"));
  EXPECT_EQ(Wrong(changed, kService, &frozen), "") << "of no other kind";
  EXPECT_EQ(Wrong(frozen, kConfigMap, &frozen), "");
  frozen["immutable"] = false;
  EXPECT_EQ(Wrong(changed, kConfigMap, &frozen), "");
}

TEST(ObjectRules, NewObjectIsWhatItsWriterMayDecideAndTheRestTheServers) {
  Json wanted = Named("a");
  wanted["metadata"].update({{"uid", "mine"},
                             {"creationTimestamp", "mine"},
                             {"generation", 7},
                             {"deletionTimestamp", "mine"},
                             {"deletionGracePeriodSeconds", 7},
                             {"managedFields", {1}},
                             {"selfLink", "mine"},
                             {"labels", Json::object()},
                             {"annotations", nullptr},
                             {"finalizers", {"f"}}});
  wanted["status"] = {{"a", 1}};
  const auto made = PrepareCreate(kConfigMap, wanted, kNow);
  ASSERT_TRUE(made.ok()) << made.status();
  Json expected = Named("a");
  expected["metadata"]["creationTimestamp"] = "2023-11-14T22:13:20Z";
  expected["metadata"]["uid"] = UidOf(*made);
  expected["metadata"]["finalizers"] = {"f"};
  expected["status"] = {{"a", 1}};
  EXPECT_EQ(*made, expected);
  EXPECT_EQ(UidOf(*made).size(), 36U);
  EXPECT_NE(UidOf(*PrepareCreate(kConfigMap, wanted, kNow)), UidOf(*made));

  const Json bare = {{"metadata", {{"name", "p"}}}, {"status", {{"phase", "Running"}}}};
  const auto pod = PrepareCreate(kPod, bare, kNow);
  EXPECT_EQ(NamespaceOf(*pod), "default");
  EXPECT_EQ(StringAt(*pod, "/apiVersion"), "v1");
  EXPECT_EQ(StringAt(*pod, "/kind"), "Pod");
  EXPECT_EQ(StringAt(*pod, "/status/phase"), "Pending");
  EXPECT_EQ(GenerationOf(*pod), 1);
  EXPECT_FALSE(PrepareCreate(kService, bare, kNow)->contains("status"));
  EXPECT_EQ(NamespaceOf(*PrepareCreate(kNode, bare, kNow)), "");
  Json read = bare;
  read["metadata"]["resourceVersion"] = "7";
  EXPECT_TRUE(absl::IsInvalidArgument(PrepareCreate(kPod, read, kNow).status()));
}

TEST(ObjectRules, GeneratedNamesAreNewAndGivenOnesStay) {
  Json wanted = Named("");
  wanted["metadata"]["generateName"] = "run-";
  const std::string name = NameOf(*PrepareCreate(kConfigMap, wanted, kNow));
  EXPECT_THAT(name, ::testing::MatchesRegex("run-[bcdfghjklmnpqrstvwxz2456789]{5}"));
  EXPECT_NE(NameOf(*PrepareCreate(kConfigMap, wanted, kNow)), name);
  wanted["metadata"]["name"] = "given";
  EXPECT_EQ(NameOf(*PrepareCreate(kConfigMap, wanted, kNow)), "given");
}

TEST(ObjectRules, WhatIsOfAnotherKindIsNotTaken) {
  const Json other = {{"apiVersion", "v1"}, {"kind", "Secret"}};
  const Json version = {{"apiVersion", "v2"}, {"kind", "ConfigMap"}};
  for (const Json& object : {other, version, Json{{"metadata", 7}}, Json::array(), Json("x")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(PrepareCreate(kConfigMap, object, kNow).status()))
        << object;
    EXPECT_TRUE(absl::IsInvalidArgument(PrepareUpdate(kConfigMap, Named("a"), object).status()))
        << object;
  }
  for (const Json& bare : {Json::object(), Json{{"metadata", nullptr}}}) {
    const auto made = PrepareCreate(kConfigMap, bare, kNow);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_THAT(Wrong(*made), HasSubstr("metadata.name: must be given"));
  }
}

TEST(ObjectRules, SecretsAreKeptInBase64Only) {
  const Json wanted = {{"data", {{"a", "eA=="}, {"b", "eA=="}}},
                       {"stringData", {{"b", "sesame"}, {"c", 7}}}};
  const auto made = PrepareCreate(kSecret, wanted, kNow);
  EXPECT_EQ(At(*made, "/data"), (Json{{"a", "eA=="}, {"b", "c2VzYW1l"}}));
  EXPECT_FALSE(made->contains("stringData"));
  EXPECT_EQ(At(*PrepareUpdate(kSecret, *made, wanted), "/data/b"), "c2VzYW1l");
  EXPECT_FALSE(PrepareCreate(kSecret, {{"stringData", "x"}}, kNow)->contains("data"));
}

Json Stored() {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata",
           {{"name", "p"},
            {"namespace", "team"},
            {"uid", "u"},
            {"creationTimestamp", "then"},
            {"generation", 3},
            {"resourceVersion", "7"},
            {"managedFields", {1}}}},
          {"spec", {{"a", 1}}},
          {"status", {{"phase", "Running"}}}};
}

TEST(ObjectRules, UpdateKeepsWhatIsTheServersAndTheStatus) {
  const Json wanted = {{"metadata",
                        {{"name", "q"},
                         {"namespace", "other"},
                         {"uid", "mine"},
                         {"generation", 9},
                         {"deletionTimestamp", "mine"},
                         {"managedFields", {2}},
                         {"labels", {{"a", "b"}}},
                         {"annotations", Json::object()}}},
                       {"spec", {{"a", 2}}},
                       {"status", {{"phase", "Failed"}}}};
  Json expected = Stored();
  expected["metadata"]["labels"] = {{"a", "b"}};
  expected["spec"] = {{"a", 2}};
  EXPECT_EQ(*PrepareUpdate(kPod, Stored(), wanted), expected);
  Json without = Stored();
  without.erase("status");
  without["metadata"].erase("managedFields");
  expected.erase("status");
  expected["metadata"].erase("managedFields");
  EXPECT_EQ(*PrepareUpdate(kPod, without, wanted), expected);
  Json node = Stored();
  node["metadata"].erase("namespace");
  Json changed = {{"metadata", {{"name", "p"}}}};
  changed["status"] = {{"phase", "Failed"}};
  EXPECT_EQ(NamespaceOf(*PrepareUpdate(kNode, node, changed)), "");
  const auto event = PrepareUpdate(kEvent, Stored(), {{"status", {{"phase", "Failed"}}}});
  EXPECT_EQ(StringAt(*event, "/status/phase"), "Failed") << "a kind without a status of its own";
}

TEST(ObjectRules, StatusUpdateChangesTheStatusAlone) {
  Json expected = Stored();
  expected["status"] = {{"phase", "Failed"}};
  EXPECT_EQ(PrepareStatusUpdate(Stored(), {{"spec", 7}, {"status", {{"phase", "Failed"}}}}),
            expected);
  expected.erase("status");
  EXPECT_EQ(PrepareStatusUpdate(Stored(), {{"spec", 7}}), expected);
}

TEST(ObjectRules, FinalizersMayBeTakenOffWhileAnObjectIsBeingDeletedAndNoneAdded) {
  Json old = Stored();
  old["metadata"]["finalizers"] = {"a", "b"};
  Json more = old;
  more["metadata"]["finalizers"] = {"a", "c"};
  EXPECT_TRUE(PrepareUpdate(kPod, old, more).ok());
  old["metadata"]["deletionTimestamp"] = "then";
  EXPECT_THAT(std::string(PrepareUpdate(kPod, old, more).status().message()),
              HasSubstr("none may be added"));
  more["metadata"]["finalizers"] = {"a", 7};
  EXPECT_FALSE(PrepareUpdate(kPod, old, more).ok());
  more["metadata"]["finalizers"] = {"b"};
  EXPECT_TRUE(PrepareUpdate(kPod, old, more).ok());
}

TEST(ObjectRules, GenerationGrowsWithAllButMetadataAndStatus) {
  const auto generation = [](const ResourceKind& kind, const char* pointer) {
    Json object = Stored();
    object[Json::json_pointer(pointer)] = 5;
    EXPECT_EQ(SpecChanged(Stored(), object), std::string_view(pointer) == "/spec/a");
    BumpGeneration(kind, Stored(), object);
    return GenerationOf(object);
  };
  EXPECT_EQ(generation(kPod, "/spec/a"), 4);
  EXPECT_EQ(generation(kPod, "/metadata/labels/a"), 3);
  EXPECT_EQ(generation(kPod, "/status/a"), 3);
  EXPECT_EQ(generation(kEvent, "/spec/a"), 3) << "it has no status";
}

TEST(ObjectRules, PreconditionsThatAreGivenMustHold) {
  const auto check = [](const char* uid, const char* version) {
    return CheckPreconditions(kPod, Stored(), uid, version);
  };
  EXPECT_TRUE(check("", "").ok());
  EXPECT_TRUE(check("u", "7").ok());
  EXPECT_THAT(std::string(check("v", "7").message()), HasSubstr("the UID given is v"));
  EXPECT_TRUE(absl::IsAborted(check("v", "")));
  EXPECT_TRUE(absl::IsAborted(check("", "6")));
  EXPECT_THAT(std::string(check("u", "6").message()), HasSubstr("read it again"));
  EXPECT_TRUE(RequireVersion(kPod, Stored()).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(RequireVersion(kPod, Named("a"))));
}

TEST(ObjectRules, DeletionWaitsForProcessesAndFinalizersAlone) {
  const auto deleted = [](const ResourceKind& kind, const Json& object,
                          std::optional<std::int64_t> grace) {
    return MarkForDeletion(
        kind, object, {.uid = "", .resource_version = "", .grace_period_seconds = grace}, kNow);
  };
  const auto grace_of = [&](const Json& object, std::optional<std::int64_t> grace) {
    return IntAt(deleted(kPod, object, grace), "/metadata/deletionGracePeriodSeconds", -1);
  };
  EXPECT_EQ(grace_of(Stored(), {}), 30);
  EXPECT_EQ(grace_of(Stored(), 5), 5);
  EXPECT_EQ(grace_of(Stored(), -5), 0);
  Json pod = Stored();
  pod["spec"]["terminationGracePeriodSeconds"] = 7;
  EXPECT_EQ(grace_of(pod, {}), 7);
  for (const char* phase : {"Succeeded", "Failed", "Pending"}) {
    pod["status"]["phase"] = phase;
    EXPECT_EQ(grace_of(pod, {}), 0) << phase;
  }
  pod["spec"]["nodeName"] = "n";
  EXPECT_EQ(grace_of(pod, {}), 7) << "a kubelet may be about to start it";

  const Json marked = deleted(kPod, Stored(), 5);
  EXPECT_EQ(StringAt(marked, "/metadata/deletionTimestamp"), "2023-11-14T22:13:25Z");
  EXPECT_EQ(GenerationOf(marked), 4);
  EXPECT_FALSE(MayRemove(marked));
  EXPECT_FALSE(MayRemove(Stored()));
  EXPECT_EQ(deleted(kPod, marked, 9), marked)
      << "a grace period can be shortened, never lengthened";
  EXPECT_EQ(deleted(kPod, marked, 5), marked);
  EXPECT_EQ(
      MarkForDeletion(kPod, marked, {.uid = "", .resource_version = "", .grace_period_seconds = 5},
                      kNow + absl::Seconds(1)),
      marked)
      << "asking again gives no more time";
  const Json shorter = deleted(kPod, marked, 1);
  EXPECT_EQ(IntAt(shorter, "/metadata/deletionGracePeriodSeconds"), 1);
  EXPECT_EQ(StringAt(shorter, "/metadata/deletionTimestamp"), "2023-11-14T22:13:21Z");
  EXPECT_EQ(GenerationOf(shorter), 4);
  EXPECT_TRUE(MayRemove(deleted(kPod, marked, 0)));

  Json map = Named("a");
  EXPECT_TRUE(MayRemove(deleted(kConfigMap, map, 30)));
  EXPECT_FALSE(deleted(kConfigMap, map, 30)["metadata"].contains("generation"));
  map["metadata"]["finalizers"] = {"f"};
  EXPECT_FALSE(MayRemove(deleted(kConfigMap, map, 30)));
}

TEST(ObjectRules, ScaleIsAViewOfAJobsWorkers) {
  Json job = Stored();
  job["spec"] = Json::object();
  EXPECT_EQ(IntAt(ScaleOf(job), "/spec/replicas"), 1) << "the default";
  job["spec"]["replicaSpecs"]["worker"]["replicas"] = 4;
  job["status"] = {{"replicas", 3}, {"selector", "a=b"}};
  const Json wanted = {{"apiVersion", "autoscaling/v1"},
                       {"kind", "Scale"},
                       {"metadata",
                        {{"name", "p"},
                         {"namespace", "team"},
                         {"uid", "u"},
                         {"resourceVersion", "7"},
                         {"creationTimestamp", "then"}}},
                       {"spec", {{"replicas", 4}}},
                       {"status", {{"replicas", 3}, {"selector", "a=b"}}}};
  EXPECT_EQ(ScaleOf(job), wanted);
  for (const std::int64_t replicas : {0LL, 2'147'483'647LL}) {
    const auto scaled = WithScale(job, {{"spec", {{"replicas", replicas}}}});
    ASSERT_TRUE(scaled.ok()) << scaled.status();
    EXPECT_EQ(IntAt(*scaled, "/spec/replicaSpecs/worker/replicas", -1), replicas);
  }
  for (const Json& replicas : {Json(-1), Json(2'147'483'648LL), Json(1.5), Json("1"), Json()}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(WithScale(job, {{"spec", {{"replicas", replicas}}}}).status()))
        << replicas;
  }
}

TEST(ObjectRules, ErrorsNameTheObject) {
  EXPECT_EQ(Describe(kPod, {"team", "p"}), "pods \"team/p\"");
  EXPECT_EQ(Describe(kLease, {"team", "l"}), "leases.coordination.k8s.io \"team/l\"");
}

}  // namespace
}  // namespace starling::kube
