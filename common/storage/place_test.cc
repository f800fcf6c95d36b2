// SPDX-License-Identifier: Apache-2.0
#include "common/storage/place.h"

#include <gtest/gtest.h>

namespace starling::storage {
namespace {

TEST(Place, FilesAndSitesAreToldApart) {
  EXPECT_EQ(ParsePlace("/a/b c")->path, "/a/b c");
  EXPECT_EQ(ParsePlace("a/b")->path, "a/b");
  EXPECT_EQ(ParsePlace("file:///a/b%20c%25")->path, "/a/b c%");
  EXPECT_EQ(ParsePlace("https://h/x%20y")->kind, Place::Kind::kHttp);
  EXPECT_EQ(ParsePlace("https://h/x%20y")->path, "https://h/x%20y");
  for (const std::string path : {"/a/b c", "/100%/ü", "/a?b#c"}) {
    EXPECT_EQ(ParsePlace(FileUri(path))->path, path);
  }
  for (const char* bad :
       {"", "gs://b/c", "s3:/bucket/c", "s3://b/c", "s3://bucket/../c", "s3://bucket//c",
        "file://host/x", "file:/x", "file:///a%2", "a\nb", "file:///a%0Ab"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParsePlace(bad).status())) << bad;
  }
  EXPECT_EQ(Below("/a/", "b c"), "/a/b c");
  EXPECT_EQ(Below("file:///a", "b c"), "file:///a/b%20c");
  EXPECT_EQ(Below("/", "b"), "/b");
  EXPECT_EQ(ParsePlace("s3://bucket/a b%20?")->kind, Place::Kind::kS3);
  EXPECT_EQ(ParsePlace("s3://bucket/a b%20?")->path, "bucket/a b%20?");
  EXPECT_EQ(Below("s3://bucket/", "a b"), "s3://bucket/a b");
}

}  // namespace
}  // namespace starling::storage
