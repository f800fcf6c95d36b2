// SPDX-License-Identifier: Apache-2.0
#include "api/spec/uris.h"

#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {
namespace {

using ::testing::HasSubstr;

TEST(PathOfUri, TakesPathsAndFileUris) {
  EXPECT_EQ(PathOfUri("a/b.csv").value(), "a/b.csv");
  EXPECT_EQ(PathOfUri("/a/b 100%.csv").value(), "/a/b 100%.csv");
  EXPECT_EQ(PathOfUri("./odd:name").value(), "./odd:name");
  EXPECT_EQ(PathOfUri("file:///a/b%20c%25").value(), "/a/b c%");
}

TEST(PathOfUri, RefusesTheRestWithARemedy) {
  const auto error = [](std::string_view uri) {
    return std::string(PathOfUri(uri).status().message());
  };
  EXPECT_THAT(error("s3://bucket/c"),
              HasSubstr("scheme s3, which cannot be used here; write a path "
                        "or file:///path"));
  EXPECT_THAT(error("https://example.com/x"), HasSubstr("scheme https"));
  EXPECT_THAT(error("file://host/x"), HasSubstr("three slashes"));
  EXPECT_THAT(error("file:x"), HasSubstr("three slashes"));
  EXPECT_THAT(error("file:///a%2"), HasSubstr("%25"));
  EXPECT_THAT(error("file:///a%0Ab"), HasSubstr("control"));
  EXPECT_THAT(error("a\nb"), HasSubstr("control"));
  EXPECT_THAT(error(""), HasSubstr("must not be empty"));
}

TEST(CheckUri, EachFieldTakesThePlacesThatItCanUse) {
  EXPECT_TRUE(CheckUri("uri", "s3://bucket/key").ok());
  EXPECT_TRUE(CheckUri("uri", "https://example.com/x").ok());
  EXPECT_TRUE(CheckUri("storeUri", "s3://bucket").ok());
  EXPECT_THAT(CheckUri("storeUri", "https://example.com/x").message(), HasSubstr("scheme https"));
  EXPECT_THAT(CheckUri("fileUri", "s3://bucket/key").message(), HasSubstr("scheme s3"));
  EXPECT_THAT(CheckUri("uri", "gs://bucket/key").message(), HasSubstr("scheme gs"));
  EXPECT_THAT(CheckUri("uri", "https://example.com/x?a=b").message(), HasSubstr("? or #"));
  EXPECT_EQ(PlacesOf("quantity"), "");
}

v1alpha1::TrainingJobSpec Absolute(const std::string& uri, const std::set<std::string>& files) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_dataset()->mutable_train()->mutable_csv()->set_uri(uri);
  spec.mutable_dataset()->mutable_validation()->mutable_idx()->set_labels_uri(uri);
  spec.mutable_checkpoint()->set_uri(uri);
  MakeUrisAbsolute(spec, {.job_folder = "jobs",
                          .working_directory = "/home/me",
                          .exists = [&files](const std::filesystem::path& path) {
                            return files.count(path.string()) != 0;
                          }});
  return spec;
}

TEST(MakeUrisAbsolute, FindsEveryUriOfTheSpec) {
  const auto spec = Absolute("a.csv", {});
  EXPECT_EQ(spec.dataset().train().csv().uri(), "/home/me/a.csv");
  EXPECT_EQ(spec.dataset().validation().idx().labels_uri(), "/home/me/a.csv");
  EXPECT_EQ(spec.checkpoint().uri(), "/home/me/a.csv");
}

TEST(MakeUrisAbsolute, PrefersTheJobFilesFolderWhereTheFileIsThere) {
  const auto place = [](const std::string& uri, const std::set<std::string>& files) {
    return Absolute(uri, files).dataset().train().csv().uri();
  };
  EXPECT_EQ(place("a.csv", {"/home/me/jobs/a.csv", "/home/me/a.csv"}), "/home/me/jobs/a.csv");
  EXPECT_EQ(place("a.csv", {"/home/me/a.csv"}), "/home/me/a.csv");
  EXPECT_EQ(place("../a.csv", {"/home/me/a.csv"}), "/home/me/a.csv");
  EXPECT_EQ(place("a-{00..12}.tar", {"/home/me/jobs/a-00.tar"}), "/home/me/jobs/a-{00..12}.tar");
  EXPECT_EQ(place("a-{00..12}.tar", {"/home/me/jobs/a-01.tar"}), "/home/me/a-{00..12}.tar");
}

TEST(MakeUrisAbsolute, LeavesAbsoluteOnesAndTurnsFileUrisIntoPaths) {
  EXPECT_EQ(Absolute("/x/a.csv", {}).checkpoint().uri(), "/x/a.csv");
  EXPECT_EQ(Absolute("file:///x/a%20b", {}).checkpoint().uri(), "/x/a b");
  EXPECT_EQ(Absolute("s3://x", {}).checkpoint().uri(), "s3://x");
}

TEST(MakeUrisAbsolute, AsksTheFileSystemByDefault) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) /
                                       ("starling_uris_test." + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "jobs" / "data");
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_checkpoint()->set_uri("data");
  MakeUrisAbsolute(spec, {.job_folder = folder / "jobs", .working_directory = "/"});
  EXPECT_EQ(spec.checkpoint().uri(), (folder / "jobs" / "data").string());
  std::filesystem::remove_all(folder);
}

TEST(CheckUrisAbsolute, NamesEveryRelativePath) {
  v1alpha1::TrainingJobSpec spec;
  spec.mutable_dataset()->mutable_train()->mutable_csv()->set_uri("data/train.csv");
  spec.mutable_dataset()->mutable_validation()->mutable_idx()->set_labels_uri("file:///labels");
  spec.mutable_checkpoint()->set_uri("kept");
  const FieldErrors errors = CheckUrisAbsolute(spec, "spec");
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_EQ(errors[0].path, "spec.dataset.train.csv.uri");
  EXPECT_THAT(errors[0].message, HasSubstr("write an absolute one"));
  EXPECT_EQ(errors[1].path, "spec.checkpoint.uri");
}

}  // namespace
}  // namespace starling::spec
