// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/objects.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace starling::kube {
namespace {

TEST(ObjectsTest, WhatIsAbsentOrStrangeReadsAsEmpty) {
  for (const Json& object : {Json(), Json("text"), Json::array(), Json{{"metadata", 7}},
                             Json{{"metadata", {{"name", 7}, {"labels", "x"}}}}}) {
    EXPECT_EQ(NameOf(object), "");
    EXPECT_EQ(LabelOf(object, "x"), "");
    EXPECT_EQ(ControllerUidOf(object), "");
    EXPECT_FALSE(IsBeingDeleted(object));
    EXPECT_FALSE(CreationTimeOf(object).has_value());
    EXPECT_TRUE(FindCondition(object, "Running").is_null());
  }
}

TEST(ResourceKinds, EveryKindIsFoundByItsNameAndVersion) {
  for (const ResourceKind& kind : AllKinds()) {
    const ResourceKind* found = FindKind(kind.ApiVersion(), kind.kind);
    ASSERT_NE(found, nullptr) << kind.kind;
    EXPECT_TRUE(*found == kind) << kind.kind;
  }
  EXPECT_NE(FindKind("starling.dev/v1alpha1", "TrainingTemplate"), nullptr);
  EXPECT_EQ(FindKind("v2", "Pod"), nullptr);
  EXPECT_EQ(FindKind("v1", "Pods"), nullptr);
}

TEST(ObjectsTest, PointersReachIntoListsAndEscapedNames) {
  const Json object = {{"a", {{{"b/c", 7}}, {{"~", true}}}}};

  EXPECT_EQ(IntAt(object, "/a/0/b~1c"), 7);
  EXPECT_TRUE(BoolAt(object, "/a/1/~0"));
  EXPECT_TRUE(At(object, "/a/2").is_null());
  EXPECT_TRUE(At(object, "/a/x").is_null());
}

TEST(ObjectsTest, OnlyWholeEscapesAreDecoded) {
  const Json object = {{"a~", 1}, {"/~", 2}, {"~1", 3}};

  EXPECT_EQ(IntAt(object, "/a~"), 1);
  EXPECT_EQ(IntAt(object, "/~1~0"), 2);
  EXPECT_EQ(IntAt(object, "/~01"), 3);
}

TEST(ObjectsTest, WhatIsOfAnotherTypeIsWhatIsSaidInstead) {
  const Json object = {{"number", 7}, {"part", 1.5}, {"flag", true}, {"text", "x"}};

  EXPECT_EQ(IntAt(object, "/number", 3), 7);
  EXPECT_EQ(StringAt(object, "/text"), "x");
  EXPECT_TRUE(At(object, "/text/0").is_null());
  EXPECT_TRUE(BoolAt(object, "/flag", false));
  for (const char* other : {"/part", "/flag", "/text", "/none"}) {
    EXPECT_EQ(IntAt(object, other), 0) << other;
    EXPECT_EQ(IntAt(object, other, 3), 3) << other;
  }
  for (const char* other : {"/number", "/part", "/text", "/none"}) {
    EXPECT_FALSE(BoolAt(object, other)) << other;
    EXPECT_TRUE(BoolAt(object, other, true)) << other;
  }
  for (const char* other : {"/number", "/part", "/flag", "/none"}) {
    EXPECT_EQ(StringAt(object, other), "") << other;
  }
}

TEST(ObjectsTest, MetadataIsReadFieldByField) {
  const Json object = {{"apiVersion", "v1"},
                       {"kind", "Pod"},
                       {"metadata",
                        {{"name", "p"},
                         {"namespace", "team"},
                         {"uid", "u"},
                         {"resourceVersion", "7"},
                         {"generation", 3},
                         {"creationTimestamp", "2023-11-14T22:13:20Z"},
                         {"deletionTimestamp", "2023-11-14T22:13:20Z"},
                         {"labels", {{"a", "1"}, {"b", 2}}},
                         {"annotations", {{"a", "3"}}},
                         {"finalizers", {"f", 7}}}}};

  EXPECT_EQ(KeyOf(object), (ObjectKey{"team", "p"}));
  EXPECT_EQ(UidOf(object), "u");
  EXPECT_EQ(ResourceVersionOf(object), "7");
  EXPECT_EQ(GenerationOf(object), 3);
  EXPECT_EQ(CreationTimeOf(object), absl::FromUnixSeconds(1'700'000'000));
  EXPECT_TRUE(IsBeingDeleted(object));
  EXPECT_EQ(LabelOf(object, "a"), "1");
  EXPECT_EQ(LabelOf(object, "b"), "");
  EXPECT_EQ(AnnotationOf(object, "a"), "3");
  EXPECT_TRUE(HasFinalizer(object, "f"));
  EXPECT_FALSE(HasFinalizer(object, "g"));
  EXPECT_EQ(ControllerReference(object), (Json{{"apiVersion", "v1"},
                                               {"kind", "Pod"},
                                               {"name", "p"},
                                               {"uid", "u"},
                                               {"controller", true},
                                               {"blockOwnerDeletion", true}}));
}

TEST(ObjectsTest, OfSeveralOwnersOneMayBeTheController) {
  Json object;
  Json& owners = object["metadata"]["ownerReferences"];
  owners = Json::array({{{"uid", "a"}}, {{"uid", "b"}, {"controller", false}}});
  EXPECT_EQ(ControllerUidOf(object), "");
  owners.push_back({{"uid", "c"}, {"controller", true}});
  EXPECT_EQ(ControllerUidOf(object), "c");
}

TEST(ObjectsTest, TimesSurviveTheRoundTrip) {
  const absl::Time time = absl::FromUnixSeconds(1'700'000'000) + absl::Microseconds(123456);

  EXPECT_EQ(FormatTimestamp(time), "2023-11-14T22:13:20Z");
  EXPECT_EQ(ParseTimestamp(FormatMicroTimestamp(time)), time);
  EXPECT_EQ(ParseTimestamp("2023-11-14T23:13:20+01:00"), absl::FromUnixSeconds(1'700'000'000));
  EXPECT_FALSE(ParseTimestamp("yesterday").has_value());
  EXPECT_FALSE(ParseTimestamp("").has_value());
}

TEST(ObjectsTest, AConditionsTransitionTimeMovesWithItsStatusOnly) {
  const absl::Time start = absl::FromUnixSeconds(1'700'000'000);
  Json job;
  Json& conditions = job["status"]["conditions"];

  EXPECT_TRUE(SetCondition(conditions, {"Running", "True", "Started", "", 1}, start));
  EXPECT_FALSE(
      SetCondition(conditions, {"Running", "True", "Started", "", 1}, start + absl::Seconds(5)));
  EXPECT_TRUE(
      SetCondition(conditions, {"Running", "True", "Resumed", "", 2}, start + absl::Seconds(5)));
  EXPECT_EQ(StringAt(FindCondition(job, "Running"), "/lastTransitionTime"), FormatTimestamp(start));
  EXPECT_TRUE(
      SetCondition(conditions, {"Running", "False", "Suspended", "", 2}, start + absl::Seconds(9)));

  EXPECT_EQ(StringAt(FindCondition(job, "Running"), "/lastTransitionTime"),
            FormatTimestamp(start + absl::Seconds(9)));
  EXPECT_FALSE(IsConditionTrue(job, "Running"));
  EXPECT_EQ(conditions.size(), 1U);
  EXPECT_TRUE(SetCondition(conditions, {"Failed", "True", "Why", "", 2}, start));
  EXPECT_EQ(conditions.size(), 2U);
  EXPECT_TRUE(IsConditionTrue(job, "Failed"));
  EXPECT_FALSE(IsConditionTrue(job, "Running"));
  EXPECT_FALSE(IsConditionTrue(job, "Succeeded"));
  Json strange = "text";
  EXPECT_TRUE(SetCondition(strange, {"Failed", "True", "Why", "", 2}, start));
  EXPECT_EQ(strange.size(), 1U);
}

}  // namespace
}  // namespace starling::kube
