// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/garbage_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/clock/clock.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

using testing::ElementsAre;

// A store that the collector sees through what a test puts before its reads and deletes; of the
// rest it needs nothing.
class Door final : public KubeClient {
 public:
  explicit Door(KubeClient& inner) : inner_(inner) {}

  // What these return is what the collector is told, unless it is OK.
  std::function<absl::Status(const ObjectKey&)> before_get = [](const auto&) {
    return absl::OkStatus();
  };
  std::function<absl::Status(const ObjectKey&)> before_delete = before_get;

  absl::StatusOr<Json> Get(const ResourceKind& kind, const ObjectKey& key) override {
    const absl::Status told = before_get(key);
    return told.ok() ? inner_.Get(kind, key) : told;
  }
  absl::StatusOr<ObjectList> List(const ResourceKind& kind, std::string_view ns,
                                  const ListOptions& options) override {
    return inner_.List(kind, ns, options);
  }
  absl::StatusOr<Json> Delete(const ResourceKind& kind, const ObjectKey& key,
                              const DeleteOptions& options) override {
    const absl::Status told = before_delete(key);
    return told.ok() ? inner_.Delete(kind, key, options) : told;
  }

  absl::StatusOr<std::unique_ptr<WatchStream>> Watch(const ResourceKind&, std::string_view,
                                                     const WatchOptions&) override {
    return kNotHere;
  }
  absl::StatusOr<Json> Create(const ResourceKind&, const Json&) override { return kNotHere; }
  absl::StatusOr<Json> Update(const ResourceKind&, const Json&) override { return kNotHere; }
  absl::StatusOr<Json> UpdateStatus(const ResourceKind&, const Json&) override { return kNotHere; }
  absl::StatusOr<Json> Patch(const ResourceKind&, const ObjectKey&, const Json&) override {
    return kNotHere;
  }
  absl::StatusOr<Json> PatchStatus(const ResourceKind&, const ObjectKey&, const Json&) override {
    return kNotHere;
  }
  absl::StatusOr<Json> Apply(const ResourceKind&, const Json&, const ApplyOptions&) override {
    return kNotHere;
  }
  absl::StatusOr<Json> DryRunCreate(const ResourceKind&, const Json&) override { return kNotHere; }
  absl::StatusOr<bool> Serves(const ResourceKind&) override { return kNotHere; }
  absl::StatusOr<Json> GetScale(const ResourceKind&, const ObjectKey&) override { return kNotHere; }
  absl::StatusOr<Json> UpdateScale(const ResourceKind&, const Json&) override { return kNotHere; }

 private:
  const absl::Status kNotHere = absl::UnimplementedError("not of the collector's use");

  KubeClient& inner_;
};

class GarbageCollectorTest : public testing::Test {
 protected:
  static Json OwnedBy(const Json& owner, const std::string& name) {
    Json object = {{"metadata", {{"name", name}}}};
    object["metadata"]["ownerReferences"] = {ControllerReference(owner)};
    return object;
  }

  Json Create(const Json& object) {
    const auto created = store_->Create(kConfigMap, object);
    EXPECT_TRUE(created.ok()) << created.status();
    return created.ok() ? *created : Json();
  }
  Json Named(const std::string& name) { return Create({{"metadata", {{"name", name}}}}); }
  void Delete(const std::string& name) {
    const auto deleted = store_->Delete(kConfigMap, {"default", name}, {});
    EXPECT_TRUE(deleted.ok()) << deleted.status();
  }
  bool Has(const std::string& name) { return store_->Get(kConfigMap, {"default", name}).ok(); }

  absl::StatusOr<int> Collect() { return CollectGarbage(door_, {kConfigMap}); }
  int Collected() {
    const auto deleted = Collect();
    EXPECT_TRUE(deleted.ok()) << deleted.status();
    return deleted.value_or(-1);
  }

  // An owner that is gone, and what it leaves behind.
  void Orphans(std::initializer_list<std::string> names) {
    const Json owner = Named("gone");
    for (const std::string& name : names) Create(OwnedBy(owner, name));
    Delete("gone");
  }

  clock::FakeClock clock_;
  std::unique_ptr<KubeClient> store_ = *OpenEmbeddedKubeClient(clock_, {});
  Door door_{*store_};
};

TEST_F(GarbageCollectorTest, ItTellsHowManyItDeleted) {
  EXPECT_EQ(Collected(), 0);
  Orphans({"a", "b"});

  EXPECT_EQ(Collected(), 2);
  EXPECT_FALSE(Has("a") || Has("b"));
  EXPECT_EQ(Collected(), 0);
}

TEST_F(GarbageCollectorTest, AnOwnerIsAskedForOnce) {
  const Json owner = Named("owner");
  for (const char* name : {"a", "b", "c"}) Create(OwnedBy(owner, name));
  std::vector<std::string> asked;
  door_.before_get = [&](const ObjectKey& key) {
    asked.push_back(key.name);
    return absl::OkStatus();
  };

  EXPECT_EQ(Collected(), 0);
  EXPECT_THAT(asked, ElementsAre("owner"));
}

TEST_F(GarbageCollectorTest, AnOwnerOfAnUnknownKindLives) {
  Json owner = Named("owner");
  owner["kind"] = "Zeppelin";
  Create(OwnedBy(owner, "a"));
  Delete("owner");

  EXPECT_EQ(Collected(), 0);
  EXPECT_TRUE(Has("a"));
}

TEST_F(GarbageCollectorTest, OneOwnerThatLivesIsEnough) {
  const Json gone = Named("gone");
  Json object = OwnedBy(gone, "a");
  Json other = ControllerReference(Named("owner"));
  other["controller"] = false;
  object["metadata"]["ownerReferences"].push_back(other);
  Create(object);
  Delete("gone");
  EXPECT_EQ(Collected(), 0);

  Delete("owner");
  EXPECT_EQ(Collected(), 1);
}

TEST_F(GarbageCollectorTest, WhereAnOwnerCannotBeReadNothingIsDeleted) {
  Orphans({"a"});
  door_.before_get = [](const ObjectKey&) { return absl::UnavailableError("busy"); };

  EXPECT_EQ(Collect().status(), absl::UnavailableError("busy"));
  EXPECT_TRUE(Has("a"));
}

TEST_F(GarbageCollectorTest, WhatIsBeingDeletedIsNotDeletedAgain) {
  const Json owner = Named("gone");
  Json object = OwnedBy(owner, "a");
  object["metadata"]["finalizers"] = {"example.com/held"};
  Create(object);
  Delete("gone");

  EXPECT_EQ(Collected(), 1);
  EXPECT_TRUE(Has("a"));
  EXPECT_EQ(Collected(), 0);
}

TEST_F(GarbageCollectorTest, WhatOthersDeletedMeanwhileCountsForNothing) {
  Orphans({"a", "b"});
  door_.before_delete = [&](const ObjectKey& key) {
    if (key.name == "a") Delete("a");
    return absl::OkStatus();
  };

  EXPECT_EQ(Collected(), 1);
  EXPECT_FALSE(Has("b"));
}

TEST_F(GarbageCollectorTest, AnotherObjectOfTheSameNameStays) {
  Orphans({"a", "b"});
  door_.before_delete = [&](const ObjectKey& key) {
    if (key.name == "a") {
      Delete("a");
      Named("a");
    }
    return absl::OkStatus();
  };

  EXPECT_EQ(Collected(), 1);
  EXPECT_TRUE(Has("a"));
  EXPECT_FALSE(Has("b"));
}

TEST_F(GarbageCollectorTest, ADeleteThatFailsIsTold) {
  Orphans({"a"});
  door_.before_delete = [](const ObjectKey&) { return absl::UnavailableError("busy"); };

  EXPECT_EQ(Collect().status(), absl::UnavailableError("busy"));
}

}  // namespace
}  // namespace starling::kube
