// SPDX-License-Identifier: Apache-2.0
#include "common/storage/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST(Place, ARangeInBracesIsAFileForEachNumber) {
  EXPECT_THAT(*ExpandRanges("s3://bucket/a-{08..11}.tar"),
              ElementsAre("s3://bucket/a-08.tar", "s3://bucket/a-09.tar", "s3://bucket/a-10.tar",
                          "s3://bucket/a-11.tar"));
  EXPECT_THAT(*ExpandRanges("{9..10}/{0..1}.tar"),
              ElementsAre("9/0.tar", "9/1.tar", "10/0.tar", "10/1.tar"));
  for (const char* plain :
       {"a.tar", "{a,b}.tar", "{1..}.tar", "{..}", "a{1..2", "{-1..2}", "{1..9999999999}", ""}) {
    EXPECT_THAT(*ExpandRanges(plain), ElementsAre(plain));
  }
}

TEST(Place, ARangeThatCountsDownOrNeverEndsIsRefused) {
  EXPECT_THAT(std::string(ExpandRanges("a{3..2}").status().message()),
              HasSubstr("has a range {3..2} that does not count up"));
  for (const char* many : {"{0..100000}", "{0..999999999}", "{1..1000}{1..1000}{1..1000}"}) {
    EXPECT_THAT(std::string(ExpandRanges(many).status().message()),
                HasSubstr("stands for more than 100000 files"));
  }
  EXPECT_EQ(ExpandRanges("{0..99999}")->size(), kMostUris);
}

TEST(Place, AUriIsCutAtItsLastSlash) {
  EXPECT_EQ(SplitUri("a.tar").folder, ".");
  EXPECT_EQ(SplitUri("a.tar").name, "a.tar");
  EXPECT_EQ(SplitUri("/a.tar").folder, "/");
  EXPECT_EQ(SplitUri("s3://bucket/a/b.tar").folder, "s3://bucket/a/");
  EXPECT_EQ(SplitUri("s3://bucket/a/b.tar").name, "b.tar");
}

}  // namespace
}  // namespace starling::storage
