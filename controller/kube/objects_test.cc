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

TEST(ObjectsTest, PointersReachIntoListsAndEscapedNames) {
  const Json object = {{"a", {{{"b/c", 7}}, {{"~", true}}}}};

  EXPECT_EQ(IntAt(object, "/a/0/b~1c"), 7);
  EXPECT_TRUE(BoolAt(object, "/a/1/~0"));
  EXPECT_TRUE(At(object, "/a/2").is_null());
  EXPECT_TRUE(At(object, "/a/x").is_null());
}

TEST(ObjectsTest, TimesSurviveTheRoundTrip) {
  const absl::Time time = absl::FromUnixSeconds(1'700'000'000) + absl::Microseconds(123456);

  EXPECT_EQ(FormatTimestamp(time), "2023-11-14T22:13:20Z");
  EXPECT_EQ(ParseTimestamp(FormatMicroTimestamp(time)), time);
  EXPECT_EQ(ParseTimestamp("2023-11-14T23:13:20+01:00"), absl::FromUnixSeconds(1'700'000'000));
  EXPECT_FALSE(ParseTimestamp("yesterday").has_value());
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
}

}  // namespace
}  // namespace starling::kube
