// SPDX-License-Identifier: Apache-2.0
// The second half of the contract: lists, selectors, pages and watches.
#pragma once

#include "tests/contract/kube_client_contract.h"

namespace starling::kube {

TEST_P(KubeClientContract, ListsAreSelectedByLabels) {
  Created(kConfigMap, ConfigMap("sel-1", {{"suite", "sel"}, {"tier", "web"}}));
  Created(kConfigMap, ConfigMap("sel-2", {{"suite", "sel"}, {"tier", "db"}}));
  Created(kConfigMap, ConfigMap("sel-3", {{"suite", "sel"}}));

  const auto names = [&](const std::string& labels) {
    return ListedNames(kConfigMap, {"suite=sel," + labels, ""});
  };
  EXPECT_THAT(names("tier=web"), ElementsAre("sel-1"));
  EXPECT_THAT(names("tier==db"), ElementsAre("sel-2"));
  EXPECT_THAT(names("tier!=web"), ElementsAre("sel-2", "sel-3"));
  EXPECT_THAT(names("tier in (web, db)"), ElementsAre("sel-1", "sel-2"));
  EXPECT_THAT(names("tier notin (web)"), ElementsAre("sel-2", "sel-3"));
  EXPECT_THAT(names("tier"), ElementsAre("sel-1", "sel-2"));
  EXPECT_THAT(names("!tier"), ElementsAre("sel-3"));
  EXPECT_THAT(names("tier=none"), IsEmpty());
}

TEST_P(KubeClientContract, ListsAreSelectedByFields) {
  Json bound = Pod("fields-1");
  bound["spec"]["nodeName"] = "node-of-fields";
  Created(kPod, bound);
  Created(kPod, Pod("fields-2"));

  EXPECT_THAT(ListedNames(kPod, {"", "spec.nodeName=node-of-fields"}), ElementsAre("fields-1"));
  EXPECT_THAT(ListedNames(kPod, {"", "metadata.name=fields-2"}), ElementsAre("fields-2"));
  EXPECT_THAT(ListedNames(kPod, {"", "metadata.name=fields-2,spec.nodeName=node-of-fields"}),
              IsEmpty());
}

TEST_P(KubeClientContract, ASelectorThatMeansNothingIsRefused) {
  const Selection selections[] = {
      {"a b c", ""}, {"a in (b", ""}, {"=x", ""}, {"", "spec.nonsense=1"}};
  for (const Selection& selection : selections) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(reader().List(kConfigMap, "default", {selection, 0, ""}).status()))
        << selection.labels << selection.fields;
  }
}

TEST_P(KubeClientContract, PagesTogetherAreTheWholeList) {
  for (const char* name : {"page-1", "page-2", "page-3"}) {
    Created(kConfigMap, ConfigMap(name, {{"suite", "page"}}));
  }
  ListOptions options{{"suite=page", ""}, 2, ""};

  const auto first = reader().List(kConfigMap, "default", options);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->items.size(), 2U);
  ASSERT_FALSE(first->continue_token.empty());
  options.continue_token = first->continue_token;
  const auto second = reader().List(kConfigMap, "default", options);
  ASSERT_TRUE(second.ok()) << second.status();

  ASSERT_EQ(second->items.size(), 1U);
  EXPECT_EQ(NameOf(second->items[0]), "page-3");
  EXPECT_TRUE(second->continue_token.empty());
  EXPECT_EQ(second->resource_version, first->resource_version);
}

TEST_P(KubeClientContract, NamespacesAreApart) {
  Json elsewhere = ConfigMap("apart");
  elsewhere["metadata"]["namespace"] = "kube-public";
  Created(kConfigMap, elsewhere);

  EXPECT_TRUE(absl::IsNotFound(reader().Get(kConfigMap, {"default", "apart"}).status()));
  const auto all = reader().List(kConfigMap, "", {{"", "metadata.name=apart"}, 0, ""});
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->items.size(), 1U);
  EXPECT_EQ(NamespaceOf(all->items[0]), "kube-public");
}

TEST_P(KubeClientContract, AWatchShowsEveryChangeSinceItsVersionInOrder) {
  const std::string version = VersionNow(kConfigMap);
  const Json created = Created(kConfigMap, ConfigMap("seen", {{"suite", "watch"}}));
  ASSERT_TRUE(writer().Patch(kConfigMap, KeyOf(created), {{"data", {{"key", "2"}}}}).ok());
  ASSERT_TRUE(writer().Delete(kConfigMap, KeyOf(created), {}).ok());

  const auto watch = reader().Watch(kConfigMap, "default", {{"suite=watch", ""}, version});

  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_THAT(Events(**watch, 3), ElementsAre("ADDED seen", "MODIFIED seen", "DELETED seen"));
}

TEST_P(KubeClientContract, AWatchSeesWhatHappensWhileItWaits) {
  const auto watch =
      reader().Watch(kConfigMap, "default", {{"suite=live", ""}, VersionNow(kConfigMap)});
  ASSERT_TRUE(watch.ok()) << watch.status();
  const auto nothing = (*watch)->Next(absl::ZeroDuration());
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_FALSE(nothing->has_value());

  Created(kConfigMap, ConfigMap("live", {{"suite", "live"}}));

  EXPECT_THAT(Events(**watch, 1), ElementsAre("ADDED live"));
}

TEST_P(KubeClientContract, AWatchFromNowhereBeginsWithWhatIsThere) {
  Created(kConfigMap, ConfigMap("here", {{"suite", "initial"}}));

  const auto watch = reader().Watch(kConfigMap, "default", {{"suite=initial", ""}, ""});
  ASSERT_TRUE(watch.ok()) << watch.status();
  Created(kConfigMap, ConfigMap("later", {{"suite", "initial"}}));

  EXPECT_THAT(Events(**watch, 2), ElementsAre("ADDED here", "ADDED later"));
}

TEST_P(KubeClientContract, AnObjectThatLeavesTheSelectionIsDeletedForItsWatchers) {
  const Json created = Created(kConfigMap, ConfigMap("mover", {{"suite", "out"}}));
  const auto watch =
      reader().Watch(kConfigMap, "default", {{"suite=in", ""}, VersionNow(kConfigMap)});
  ASSERT_TRUE(watch.ok()) << watch.status();
  const auto move = [&](const char* suite) {
    EXPECT_TRUE(
        writer()
            .Patch(kConfigMap, KeyOf(created), {{"metadata", {{"labels", {{"suite", suite}}}}}})
            .ok());
  };

  move("in");
  move("out");

  EXPECT_THAT(Events(**watch, 2), ElementsAre("ADDED mover", "DELETED mover"));
}

TEST_P(KubeClientContract, AStoppedWatchEnds) {
  const auto watch = reader().Watch(kConfigMap, "default", {{}, VersionNow(kConfigMap)});
  ASSERT_TRUE(watch.ok()) << watch.status();

  (*watch)->Stop();

  EXPECT_TRUE(absl::IsCancelled((*watch)->Next(kPatience).status()));
}

}  // namespace starling::kube
