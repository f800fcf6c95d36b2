// SPDX-License-Identifier: Apache-2.0
#include "controller/templates/templates.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "common/clock/clock.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/kube/training_job_admission.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::templates {
namespace {

using kube::Json;
using ::testing::HasSubstr;

class FolderTemplatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("templates.") +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& file, const std::string& text) {
    std::ofstream(folder_ / file) << text;
  }
  void WriteTemplate(const std::string& file, const std::string& name, const std::string& rest = "",
                     const std::string& kind = "TrainingTemplate") {
    Write(file, "apiVersion: starling.dev/v1alpha1\nkind: " + kind + "\nmetadata: {name: " + name +
                    rest + "}\nspec: {defaults: {stop: {epochs: 3}}}\n");
  }
  absl::StatusOr<Json> Find(const std::string& name, const std::string& ns = "default",
                            const std::string& kind = "TrainingTemplate") {
    return FolderTemplates(folder_.string()).Find({kind, ns, name});
  }

  std::filesystem::path folder_;
};

TEST_F(FolderTemplatesTest, AreFoundByWhatTheySayNotByTheirFiles) {
  WriteTemplate("any.yaml", "small");
  WriteTemplate("other.yml", "small", "", "ClusterTrainingTemplate");
  WriteTemplate("notes.txt", "hidden");
  ASSERT_TRUE(Find("small").ok());
  EXPECT_EQ(kube::StringAt(*Find("small", "a", "ClusterTrainingTemplate"), "/kind"),
            "ClusterTrainingTemplate");
  EXPECT_TRUE(absl::IsNotFound(Find("hidden").status()));
  EXPECT_EQ(FolderTemplates(folder_.string()).List("default")->size(), 2U);
  EXPECT_TRUE(FolderTemplates((folder_ / "any.yaml").string())
                  .Find({"TrainingTemplate", "", "small"})
                  .ok());
}

TEST_F(FolderTemplatesTest, AreOfTheNamespaceThatTheyName) {
  WriteTemplate("a.yaml", "small", ", namespace: team");
  EXPECT_TRUE(Find("small", "team").ok());
  EXPECT_TRUE(absl::IsNotFound(Find("small", "default").status()));
  EXPECT_TRUE(FolderTemplates(folder_.string()).List("default")->empty());
}

TEST_F(FolderTemplatesTest, TwoOfOneNameAreNeither) {
  WriteTemplate("a.yaml", "small");
  WriteTemplate("b.yaml", "small");
  EXPECT_THAT(std::string(Find("small").status().message()), HasSubstr("b.yaml both hold it"));
}

TEST_F(FolderTemplatesTest, AWrongFileHarmsOnlyThoseWhoMissWhatItMayHold) {
  WriteTemplate("a.yaml", "small");
  Write("b.yaml", "kind: [unclosed");
  Write("c.yaml", "apiVersion: v1\nkind: Pod\n");
  EXPECT_TRUE(Find("small").ok());
  const absl::Status missing = Find("large").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("b.yaml"));
}

TEST_F(FolderTemplatesTest, AFolderThatIsNotThereHasNone) {
  std::filesystem::remove_all(folder_);
  EXPECT_THAT(std::string(Find("small").status().message()), HasSubstr("no file of"));
  EXPECT_TRUE(FolderTemplates(folder_.string()).List("default")->empty());
}

// The store admits a job as a cluster's webhook does, each time with the templates of that moment.
TEST_F(FolderTemplatesTest, AStoreLaysThemUnderItsJobs) {
  const clock::SystemClock clock;
  WriteTemplate("a.yaml", "small");
  kube::EmbeddedOptions options;
  options.admission["TrainingJob"] =
      kube::AdmitTrainingJobs(Finder(std::make_shared<FolderTemplates>(folder_.string())));
  auto store = kube::OpenEmbeddedKubeClient(clock, std::move(options));
  ASSERT_TRUE(store.ok());
  const Json job = {{"apiVersion", "starling.dev/v1alpha1"},
                    {"kind", "TrainingJob"},
                    {"metadata", {{"name", "digits"}, {"namespace", "default"}}},
                    {"spec",
                     {{"templateRef", {{"name", "small"}}},
                      {"workload", {{"classification", {{"model", {{"mlp", Json::object()}}}}}}},
                      {"dataset", {{"train", {{"synthetic", Json::object()}}}}}}}};
  auto created = (*store)->Create(kube::kTrainingJob, job);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(kube::IntAt(*created, "/spec/stop/epochs"), 3);
  std::filesystem::remove_all(folder_);
  auto patched = (*store)->Patch(kube::kTrainingJob, {"default", "digits"},
                                 {{"spec", {{"stop", {{"epochs", 4}}}}}});
  ASSERT_TRUE(patched.ok()) << patched.status();
  EXPECT_EQ(kube::IntAt(*patched, "/spec/stop/epochs"), 4);
  Json other = job;
  other["metadata"]["name"] = "more";
  EXPECT_THAT(std::string((*store)->Create(kube::kTrainingJob, other).status().message()),
              HasSubstr("there is no TrainingTemplate \"small\""));
}

// Of objects: the embedded store stands for the API server.
TEST(ClusterTemplates, AreObjectsOfTheNamespaceAndOfTheCluster) {
  const clock::SystemClock clock;
  auto store = kube::OpenEmbeddedKubeClient(clock, {});
  ASSERT_TRUE(store.ok());
  Json object = {{"apiVersion", "starling.dev/v1alpha1"},
                 {"kind", "TrainingTemplate"},
                 {"metadata", {{"name", "small"}, {"namespace", "team"}}},
                 {"spec", {{"description", "one"}}}};
  ASSERT_TRUE((*store)->Create(kube::kTrainingTemplate, object).ok());
  object["kind"] = "ClusterTrainingTemplate";
  object["metadata"].erase("namespace");
  ASSERT_TRUE((*store)->Create(kube::kClusterTrainingTemplate, object).ok());
  const ClusterTemplates templates(**store);
  EXPECT_TRUE(templates.Find({"TrainingTemplate", "team", "small"}).ok());
  EXPECT_TRUE(templates.Find({"ClusterTrainingTemplate", "any", "small"}).ok());
  const absl::Status missing = templates.Find({"TrainingTemplate", "other", "small"}).status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("namespace \"other\" has none"));
  const auto listed = templates.List("team");
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed->size(), 2U);
  EXPECT_EQ(kube::StringAt((*listed)[0], "/kind"), "ClusterTrainingTemplate");
  EXPECT_EQ(templates.List("other")->size(), 1U);
}

}  // namespace
}  // namespace starling::templates
