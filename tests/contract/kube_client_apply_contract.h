// SPDX-License-Identifier: Apache-2.0
// The third part of the contract: server-side apply, dry runs and discovery.
#pragma once

#include "tests/contract/kube_client_contract.h"

namespace starling::kube {

class KubeClientApplyContract : public KubeClientContract {
 protected:
  static Json Data(const std::string& name, const Json& data) {
    Json object = ConfigMap(name);
    object["data"] = data;
    object["metadata"].erase("labels");
    return object;
  }

  absl::StatusOr<Json> Apply(const Json& object, const std::string& manager, bool force = false) {
    return writer().Apply(kConfigMap, object,
                          {.field_manager = manager, .force = force, .dry_run = false});
  }

  Json Applied(const Json& object, const std::string& manager, bool force = false) {
    const auto applied = Apply(object, manager, force);
    EXPECT_TRUE(applied.ok()) << applied.status();
    return applied.ok() ? *applied : Json();
  }

  Json DataOf(const std::string& name) { return At(Read(kConfigMap, name), "/data"); }
};

TEST_P(KubeClientApplyContract, WhatIsNotThereIsMade) {
  const Json applied = Applied(Data("apply-new", {{"a", "1"}}), "one");

  EXPECT_FALSE(UidOf(applied).empty());
  EXPECT_EQ(DataOf("apply-new"), (Json{{"a", "1"}}));
}

TEST_P(KubeClientApplyContract, ApplyingTheSameAgainChangesNothing) {
  const Json first = Applied(Data("apply-same", {{"a", "1"}}), "one");
  const Json second = Applied(Data("apply-same", {{"a", "1"}}), "one");

  EXPECT_EQ(ResourceVersionOf(first), ResourceVersionOf(second));
}

TEST_P(KubeClientApplyContract, AFieldThatIsNoLongerAppliedGoes) {
  Applied(Data("apply-drop", {{"a", "1"}, {"b", "2"}}), "one");
  Applied(Data("apply-drop", {{"a", "1"}}), "one");

  EXPECT_EQ(DataOf("apply-drop"), (Json{{"a", "1"}}));
}

TEST_P(KubeClientApplyContract, WhatOthersAppliedStays) {
  Applied(Data("apply-others", {{"a", "1"}}), "one");
  Applied(Data("apply-others", {{"b", "2"}}), "two");
  EXPECT_EQ(DataOf("apply-others"), (Json{{"a", "1"}, {"b", "2"}}));

  Applied(Data("apply-others", {{"c", "3"}}), "one");
  EXPECT_EQ(DataOf("apply-others"), (Json{{"b", "2"}, {"c", "3"}}));
}

TEST_P(KubeClientApplyContract, AFieldOfTwoStaysUntilBothLetGo) {
  Applied(Data("apply-shared", {{"a", "1"}, {"one", "1"}}), "one");
  Applied(Data("apply-shared", {{"a", "1"}, {"two", "2"}}), "two");

  Applied(Data("apply-shared", {{"one", "1"}}), "one");
  EXPECT_EQ(DataOf("apply-shared"), (Json{{"a", "1"}, {"one", "1"}, {"two", "2"}}));
  Applied(Data("apply-shared", {{"two", "2"}}), "two");
  EXPECT_EQ(DataOf("apply-shared"), (Json{{"one", "1"}, {"two", "2"}}));
}

TEST_P(KubeClientApplyContract, AnotherValueForAnothersFieldIsAConflictThatNamesBoth) {
  Applied(Data("apply-conflict", {{"a", "1"}}), "owner-of-a");

  const auto refused = Apply(Data("apply-conflict", {{"a", "2"}}), "two");

  EXPECT_TRUE(absl::IsAborted(refused.status())) << refused.status();
  EXPECT_THAT(refused.status().message(),
              testing::AllOf(HasSubstr("owner-of-a"), HasSubstr(".data.a")));
  EXPECT_EQ(DataOf("apply-conflict"), (Json{{"a", "1"}}));
}

TEST_P(KubeClientApplyContract, ForceTakesTheField) {
  Applied(Data("apply-force", {{"a", "1"}, {"b", "1"}}), "one");

  Applied(Data("apply-force", {{"a", "2"}}), "two", /*force=*/true);
  EXPECT_EQ(DataOf("apply-force"), (Json{{"a", "2"}, {"b", "1"}}));

  Applied(Data("apply-force", {{"b", "1"}}), "one");
  EXPECT_EQ(DataOf("apply-force"), (Json{{"a", "2"}, {"b", "1"}}))
      << "it is no longer one's to drop";
  EXPECT_TRUE(absl::IsAborted(Apply(Data("apply-force", {{"a", "1"}}), "one").status()));
}

TEST_P(KubeClientApplyContract, AWriteOfAnotherSortTakesWhatItChanges) {
  Applied(Data("apply-patched", {{"a", "1"}, {"b", "1"}}), "one");
  ASSERT_TRUE(
      writer().Patch(kConfigMap, {"default", "apply-patched"}, {{"data", {{"a", "2"}}}}).ok());

  EXPECT_TRUE(
      absl::IsAborted(Apply(Data("apply-patched", {{"a", "1"}, {"b", "1"}}), "one").status()));
  Applied(Data("apply-patched", {{"a", "1"}, {"b", "1"}}), "one", /*force=*/true);
  EXPECT_EQ(DataOf("apply-patched"), (Json{{"a", "1"}, {"b", "1"}}));
}

TEST_P(KubeClientApplyContract, AnObjectThatWasNotAppliedKeepsItsFields) {
  Created(kConfigMap, Data("apply-created", {{"a", "1"}}));

  EXPECT_TRUE(absl::IsAborted(Apply(Data("apply-created", {{"a", "2"}}), "one").status()));
  Applied(Data("apply-created", {{"b", "2"}}), "one");
  EXPECT_EQ(DataOf("apply-created"), (Json{{"a", "1"}, {"b", "2"}}));
}

TEST_P(KubeClientApplyContract, AnotherUidIsAConflict) {
  const Json created = Created(kConfigMap, Data("apply-uid", {{"a", "1"}}));
  Json object = Data("apply-uid", {{"b", "2"}});
  object["metadata"]["uid"] = "2d0d9f0e-0000-4000-8000-000000000000";

  EXPECT_TRUE(absl::IsAborted(Apply(object, "one").status()));
  object["metadata"]["uid"] = UidOf(created);
  EXPECT_TRUE(Apply(object, "one").ok());
  object["metadata"]["name"] = "apply-uid-gone";
  EXPECT_TRUE(absl::IsAborted(Apply(object, "one").status()));
  EXPECT_TRUE(absl::IsNotFound(reader().Get(kConfigMap, {"default", "apply-uid-gone"}).status()));
}

TEST_P(KubeClientApplyContract, WithoutAManagerNothingIsApplied) {
  EXPECT_TRUE(absl::IsInvalidArgument(Apply(Data("apply-nobody", {{"a", "1"}}), "").status()));
}

TEST_P(KubeClientApplyContract, ADryApplyStoresNothing) {
  const auto dry = writer().Apply(kConfigMap, Data("apply-dry", {{"a", "1"}}),
                                  {.field_manager = "one", .force = true, .dry_run = true});

  ASSERT_TRUE(dry.ok()) << dry.status();
  EXPECT_EQ(StringAt(*dry, "/data/a"), "1");
  EXPECT_TRUE(absl::IsNotFound(reader().Get(kConfigMap, {"default", "apply-dry"}).status()));
}

TEST_P(KubeClientApplyContract, ADryCreateFindsWhatACreateWouldAndStoresNothing) {
  ASSERT_TRUE(writer().DryRunCreate(kConfigMap, ConfigMap("dry")).ok());
  EXPECT_TRUE(absl::IsNotFound(reader().Get(kConfigMap, {"default", "dry"}).status()));

  EXPECT_TRUE(
      absl::IsInvalidArgument(writer().DryRunCreate(kConfigMap, ConfigMap("Upper")).status()));
  Created(kConfigMap, ConfigMap("dry-taken"));
  EXPECT_TRUE(
      absl::IsAlreadyExists(writer().DryRunCreate(kConfigMap, ConfigMap("dry-taken")).status()));
}

TEST_P(KubeClientApplyContract, WhatIsServedIsSaid) {
  for (const ResourceKind& kind : {kTrainingJob, kPod, kLease, kNode, kPodDisruptionBudget}) {
    const auto serves = reader().Serves(kind);
    ASSERT_TRUE(serves.ok()) << serves.status();
    EXPECT_TRUE(*serves) << kind.plural;
  }
  const auto serves = reader().Serves(kVolcanoPodGroup);
  ASSERT_TRUE(serves.ok()) << serves.status();
  EXPECT_FALSE(*serves);
}

TEST_P(KubeClientApplyContract, AKindThatIsNotServedIsNotFoundByAnyVerb) {
  const Json group = {{"apiVersion", kVolcanoPodGroup.ApiVersion()},
                      {"kind", "PodGroup"},
                      {"metadata", {{"name", "none"}, {"namespace", "default"}}}};
  const ObjectKey key{"default", "none"};

  EXPECT_TRUE(absl::IsNotFound(writer().Create(kVolcanoPodGroup, group).status()));
  EXPECT_TRUE(absl::IsNotFound(reader().Get(kVolcanoPodGroup, key).status()));
  EXPECT_TRUE(absl::IsNotFound(reader().List(kVolcanoPodGroup, "default", {}).status()));
  EXPECT_TRUE(absl::IsNotFound(reader().Watch(kVolcanoPodGroup, "default", {}).status()));
  EXPECT_TRUE(absl::IsNotFound(
      writer()
          .Apply(kVolcanoPodGroup, group, {.field_manager = "x", .force = true, .dry_run = false})
          .status()));
}

}  // namespace starling::kube
