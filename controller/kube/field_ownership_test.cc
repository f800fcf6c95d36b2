// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/field_ownership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A tree of fields as the paths of its leaves, each behind a space.
std::string Paths(const Json& fields, const std::string& path = "") {
  if (fields == Json::object()) return " " + path;
  if (!fields.is_object()) return " no tree of fields: " + fields.dump();
  std::string paths;
  for (const auto& [key, branch] : fields.items()) {
    absl::StrAppend(&paths, Paths(branch, path + "." + key.substr(2)));
  }
  return paths;
}

class FieldOwnershipTest : public testing::Test {
 protected:
  static Json Object(const Json& fields) {
    Json object = {{"apiVersion", "v1"},
                   {"kind", "ConfigMap"},
                   {"metadata", {{"name", "a"}, {"namespace", "default"}}}};
    object.merge_patch(fields);
    return object;
  }

  // Applies to the object that there is.
  absl::Status Apply(const std::string& manager, const Json& object, bool force = false) {
    auto applied = MergeApplied(kConfigMap, live_.is_null() ? nullptr : &live_, object,
                                {.field_manager = manager, .force = force, .dry_run = false});
    if (applied.ok()) live_ = *std::move(applied);
    return applied.status();
  }
  void Applied(const std::string& manager, const Json& fields) {
    EXPECT_EQ(Apply(manager, Object(fields)), absl::OkStatus());
  }
  void Forced(const std::string& manager, const Json& fields) {
    EXPECT_EQ(Apply(manager, Object(fields), /*force=*/true), absl::OkStatus());
  }

  // A write of another sort.
  void Patched(const Json& patch) {
    const Json old = live_;
    live_.merge_patch(patch);
    TakeOwnership(old, live_);
  }

  std::vector<std::string> Owners() const {
    std::vector<std::string> owners;
    for (const Json& entry : At(live_, "/metadata/managedFields")) {
      owners.push_back(absl::StrCat(StringAt(entry, "/manager"), " ", StringAt(entry, "/operation"),
                                    ":", Paths(At(entry, "/fieldsV1"))));
    }
    return owners;
  }
  Json Data() const { return At(live_, "/data"); }

  Json live_;  // null: there is none
};

TEST_F(FieldOwnershipTest, AnEntryIsInTheFormOfKubernetes) {
  Applied("one", {{"data", {{"a", "1"}}}});

  EXPECT_EQ(At(live_, "/metadata/managedFields"),
            Json::array({{{"manager", "one"},
                          {"operation", "Apply"},
                          {"apiVersion", "v1"},
                          {"fieldsType", "FieldsV1"},
                          {"fieldsV1", {{"f:data", {{"f:a", Json::object()}}}}}}}));
}

TEST_F(FieldOwnershipTest, IdentityAndWhatTheServerSetsHaveNoOwner) {
  Applied("one", {{"metadata",
                   {{"labels", {{"x", "y"}}},
                    {"uid", "u"},
                    {"creationTimestamp", "2026-01-01T00:00:00Z"},
                    {"generation", 1},
                    {"deletionTimestamp", "2026-01-01T00:00:00Z"},
                    {"deletionGracePeriodSeconds", 1},
                    {"resourceVersion", "5"},
                    {"generateName", "a-"}}}});

  EXPECT_THAT(Owners(), ElementsAre("one Apply: .metadata.labels.x"));
}

TEST_F(FieldOwnershipTest, AnObjectWithoutMetadataHasOwners) {
  EXPECT_EQ(Apply("one", {{"data", {{"a", "1"}}}}), absl::OkStatus());

  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.a"));
}

TEST_F(FieldOwnershipTest, AStatusHasAnOwnerOnlyWhereItIsWrittenWithTheRest) {
  const Json object = Object({{"data", {{"a", "1"}}}, {"status", {{"phase", "x"}}}});
  const ApplyOptions options{.field_manager = "one", .force = false, .dry_run = false};

  live_ = *MergeApplied(kConfigMap, nullptr, object, options);
  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.a .status.phase"));
  live_ = *MergeApplied(kPod, nullptr, object, options);
  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.a"));
}

TEST_F(FieldOwnershipTest, WhatWasThereBeforeTheFirstApplyIsTheWriters) {
  live_ = Object({{"data", {{"a", "1"}}}});
  Applied("one", {{"data", {{"b", "2"}}}});

  EXPECT_THAT(Owners(), ElementsAre("starling Update: .data.a", "one Apply: .data.b"));
}

TEST_F(FieldOwnershipTest, WhoAppliesUnderTheNameOfTheWriterIsAnother) {
  live_ = Object({{"data", {{"a", "1"}}}});

  EXPECT_THAT(Apply("starling", Object({{"data", {{"a", "2"}}}})).message(),
              HasSubstr("conflict with \"starling\": .data.a"));
}

TEST_F(FieldOwnershipTest, OnesOwnFieldsMayChange) {
  Applied("one", {{"data", {{"a", "1"}}}});
  Applied("one", {{"data", {{"a", "2"}}}});

  EXPECT_EQ(Data(), (Json{{"a", "2"}}));
}

TEST_F(FieldOwnershipTest, ANullIsNotApplied) {
  Applied("one", {{"data", {{"a", "1"}}}});
  Json object = Object({{"data", {{"a", "1"}}}});
  object["data"]["b"] = nullptr;
  EXPECT_EQ(Apply("one", object), absl::OkStatus());

  EXPECT_EQ(Data(), (Json{{"a", "1"}}));
  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.a"));
}

// What one applies as `spec`, and another after it.
struct OtherForm {
  std::string name;
  Json first;
  Json second;
  std::string path;
};

class OtherFormTest : public FieldOwnershipTest, public testing::WithParamInterface<OtherForm> {};

TEST_P(OtherFormTest, IsAConflict) {
  Applied("one", {{"spec", GetParam().first}});

  const absl::Status refused = Apply("two", Object({{"spec", GetParam().second}}));
  EXPECT_TRUE(absl::IsAborted(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr(": 1 conflicts: conflict with \"one\": .spec;"));
  EXPECT_EQ(At(live_, "/spec"), GetParam().first);
}

TEST_P(OtherFormTest, IsTakenAsAWholeWithForce) {
  Applied("one", {{"spec", GetParam().first}});
  Forced("two", {{"spec", GetParam().second}});

  EXPECT_EQ(At(live_, "/spec"), GetParam().second);
  EXPECT_THAT(Owners(), ElementsAre("two Apply: " + GetParam().path));
}

TEST_P(OtherFormTest, IsTakenAsAWholeByAWrite) {
  Applied("one", {{"spec", GetParam().first}});
  const Json old = live_;
  live_["spec"] = GetParam().second;
  TakeOwnership(old, live_);

  EXPECT_THAT(Owners(), ElementsAre("starling Update: " + GetParam().path));
}

INSTANTIATE_TEST_SUITE_P(
    Forms, OtherFormTest,
    testing::Values(OtherForm{"TextForAMap", {{"a", "1"}}, "text", ".spec"},
                    OtherForm{"AMapForText", "text", {{"a", "1"}}, ".spec.a"},
                    OtherForm{"AMapForAList", {1, 2}, {{"a", {{"b", "1"}}}}, ".spec.a.b"},
                    OtherForm{"AListForAMap", {{"a", "1"}, {"b", "2"}}, {1, 2}, ".spec"},
                    OtherForm{"AnotherList", {1, 2}, {1, 3}, ".spec"}),
    [](const auto& test) { return test.param.name; });

TEST_F(FieldOwnershipTest, ForceTakesWhatItChangesAndNothingElse) {
  Applied("one", {{"data", {{"a", "1"}, {"b", "1"}}}});
  Applied("two", {{"data", {{"b", "1"}}}});
  Forced("three", {{"data", {{"a", "2"}, {"b", "1"}}}});

  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.b", "two Apply: .data.b",
                                    "three Apply: .data.a .data.b"));
}

TEST_F(FieldOwnershipTest, FieldsOfTheSameValueAreOfBothWithoutForceToo) {
  Applied("one", {{"data", {{"a", "1"}}}});
  Applied("two", {{"data", {{"a", "1"}, {"b", "2"}}}});

  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.a", "two Apply: .data.a .data.b"));
}

TEST_F(FieldOwnershipTest, WhoOwnsNothingMoreIsNoLongerListed) {
  Applied("one", {{"data", {{"a", "1"}}}});
  Forced("two", {{"data", {{"a", "2"}}}});

  EXPECT_THAT(Owners(), ElementsAre("two Apply: .data.a"));
}

TEST_F(FieldOwnershipTest, WhatAnyOfTheOthersOwnsStays) {
  Applied("one", {{"data", {{"a", "1"}, {"b", "1"}, {"c", "1"}}}});
  Applied("two", {{"data", {{"a", "1"}}}});
  Applied("three", {{"data", {{"b", "1"}}}});
  Applied("one", {{"data", {{"d", "1"}}}});

  EXPECT_EQ(Data(), (Json{{"a", "1"}, {"b", "1"}, {"d", "1"}}));
}

TEST_F(FieldOwnershipTest, AMapGoesWithItsLastField) {
  Applied("one", {{"data", {{"a", "1"}}}, {"spec", {{"b", {{"c", 1}}}}}});
  Applied("one", {{"data", {{"a", "1"}}}});

  EXPECT_EQ(live_.count("spec"), 0U) << live_;
}

TEST_F(FieldOwnershipTest, AMapStaysWhileItHasFieldsWithoutAnOwner) {
  Applied("one", {{"metadata", {{"labels", {{"x", "y"}}}}}, {"data", {{"a", "1"}}}});
  Applied("one", {{"data", {{"a", "1"}}}});

  EXPECT_EQ(KeyOf(live_), (ObjectKey{"default", "a"}));
  EXPECT_TRUE(At(live_, "/metadata/labels").is_null());
}

TEST_F(FieldOwnershipTest, AnEmptyMapThatIsAppliedAgainTakesNothingAway) {
  Applied("one", {{"data", {{"a", "1"}}}});
  Forced("two", {{"data", Json::object()}});
  Applied("two", {{"data", Json::object()}});

  EXPECT_EQ(Data(), (Json{{"a", "1"}}));
}

TEST_F(FieldOwnershipTest, AMapThatIsOwnedAsAWholeGoesAsAWhole) {
  Applied("one", {{"data", {{"a", "1"}}}});
  Forced("two", {{"data", Json::object()}});
  Applied("two", {{"spec", "x"}});

  EXPECT_EQ(live_.count("data"), 0U) << live_;
}

// As a Secret's stringData, which is stored as data: its fields are not there.
TEST_F(FieldOwnershipTest, WhatIsGoneAlreadyNeedsNoRemoval) {
  Applied("one", {{"data", {{"a", "1"}}}, {"spec", "x"}});
  live_.erase("spec");
  Applied("one", {{"data", {{"a", "1"}}}});

  EXPECT_EQ(Data(), (Json{{"a", "1"}}));
  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.a"));
}

TEST_F(FieldOwnershipTest, WhatWasAppliedGoesInWhateverFormItIs) {
  Applied("one", {{"data", {{"a", "1"}}}, {"spec", {{"b", "1"}}}});
  live_["spec"] = "text";
  Applied("one", {{"data", {{"a", "1"}}}});

  EXPECT_EQ(live_.count("spec"), 0U) << live_;
}

TEST_F(FieldOwnershipTest, WhatAnotherOwnsAndIsNotThereIsAConflict) {
  const Json wanted = {{"spec", {{"a", {{"b", "1"}}}}}};
  Applied("one", wanted);
  live_["spec"] = {{"a", "text"}};
  EXPECT_THAT(Apply("two", Object(wanted)).message(), HasSubstr("\"one\": .spec.a.b;"));

  live_["spec"] = "text";
  EXPECT_THAT(Apply("two", Object(wanted)).message(), HasSubstr("\"one\": .spec.a;"));

  live_.erase("spec");
  EXPECT_THAT(Apply("two", Object(wanted)).message(), HasSubstr("\"one\": .spec;"));
}

TEST_F(FieldOwnershipTest, AWriteTakesWhatItChangesAndNothingElse) {
  Applied("one", {{"data", {{"a", "1"}, {"b", "1"}}}});
  Patched({{"data", {{"a", "2"}}}});

  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.b", "starling Update: .data.a"));
}

TEST_F(FieldOwnershipTest, AWriteOwnsWhatItAdds) {
  Applied("one", {{"data", {{"a", "1"}}}});
  Patched({{"data", {{"b", "1"}}}, {"spec", {{"c", {{"d", 1}}}}}});

  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.a", "starling Update: .data.b .spec.c.d"));
}

TEST_F(FieldOwnershipTest, WhatAWriteRemovesHasNoOwner) {
  Applied("one", {{"data", {{"a", "1"}, {"b", "1"}}}});
  Patched({{"data", {{"a", nullptr}}}});

  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.b"));
}

TEST_F(FieldOwnershipTest, AWriterHasOneEntry) {
  Applied("one", {{"data", {{"a", "1"}, {"b", "1"}}}});
  Patched({{"data", {{"a", "2"}}}});
  Patched({{"data", {{"c", "1"}}}});
  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.b", "starling Update: .data.a .data.c"));

  Patched({{"data", {{"a", nullptr}}}});
  EXPECT_THAT(Owners(), ElementsAre("one Apply: .data.b", "starling Update: .data.c"));
}

TEST_F(FieldOwnershipTest, WhoLosesAllToAWriteIsNoLongerListed) {
  Applied("one", {{"data", {{"a", "1"}}}});
  Patched({{"data", {{"a", "2"}}}});

  EXPECT_THAT(Owners(), ElementsAre("starling Update: .data.a"));
}

TEST_F(FieldOwnershipTest, AWriteThatChangesNothingLeavesTheListAsItIs) {
  Applied("one", {{"data", {{"a", "1"}}}});
  Applied("two", Json::object());
  const Json before = live_;
  Patched({{"status", {{"phase", "x"}}}, {"metadata", {{"resourceVersion", "6"}}}});

  EXPECT_EQ(At(live_, "/metadata/managedFields"), At(before, "/metadata/managedFields"));
}

TEST_F(FieldOwnershipTest, AWriteToWhatNobodyAppliedToIsNotTracked) {
  live_ = Object({{"data", {{"a", "1"}}}});
  Patched({{"data", {{"a", "2"}}}});

  EXPECT_THAT(Owners(), IsEmpty());
}

TEST_F(FieldOwnershipTest, NamesMayHaveSlashesAndTildes) {
  const Json labels = {
      {"metadata", {{"labels", {{"app.kubernetes.io/name", "x"}, {"a~1b", "y"}}}}}};
  Applied("one", labels);
  Applied("two", labels);

  EXPECT_THAT(
      Owners(),
      ElementsAre("one Apply: .metadata.labels.app.kubernetes.io/name .metadata.labels.a~1b",
                  "two Apply: .metadata.labels.app.kubernetes.io/name .metadata.labels.a~1b"));
}

TEST_F(FieldOwnershipTest, AMapThatIsAppliedEmptyLosesWhatWasAppliedBefore) {
  Applied("one", {{"data", {{"a", "1"}, {"b", "1"}}}});
  Applied("one", {{"data", Json::object()}});

  EXPECT_EQ(Data(), Json::object());
}

// Twice the work for each level would not end.
TEST_F(FieldOwnershipTest, AWriteDeepInAnObjectTakesNoTime) {
  Json first = "1";
  Json second = "2";
  for (int i = 0; i < 60; ++i) {
    first = Json{{"k", first}};
    second = Json{{"k", second}};
  }
  Applied("one", {{"spec", first}});
  Patched({{"spec", second}});

  EXPECT_THAT(Owners(), ElementsAre(testing::StartsWith("starling Update: .spec.k.k.k")));
}

}  // namespace
}  // namespace starling::kube
