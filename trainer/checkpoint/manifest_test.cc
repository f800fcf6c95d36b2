// SPDX-License-Identifier: Apache-2.0
// Manifests and shards that somebody has made up, each with the digests that belong to it.
#include "trainer/checkpoint/manifest.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/json/json.h"
#include "common/storage/memory_blob_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr StateId kId{1, 2, 3};

Manifest Good() {
  return {.id = kId,
          .shards = {{"a.safetensors", 3, std::string(64, 'a')}},
          .attributes = {{"spec", "abc"}}};
}

std::string WhyNot(const std::string& text) {
  return std::string(ParseManifest(text).status().message());
}

TEST(Manifest, SaysWhatItIsNot) {
  EXPECT_TRUE(ParseManifest(ToText(Good())).ok());
  EXPECT_THAT(WhyNot("[]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(WhyNot("{"), HasSubstr("is not a JSON object"));
  auto newer = *json::Parse(ToText(Good()));
  newer["format"] = "starling-checkpoint/2";
  EXPECT_THAT(WhyNot(json::DumpPretty(newer)), HasSubstr("has another format"));
  newer.erase("format");
  EXPECT_THAT(WhyNot(json::DumpPretty(newer)), HasSubstr("digest"));
}

TEST(Manifest, AnyOfItsMembersMayBeMissingOrOfAnyTypeAndNothingBreaks) {
  const nlohmann::json good = *json::Parse(ToText(Good()));
  for (const char* pointer :
       {"/state", "/shards", "/attributes", "/sha256", "/shards/0", "/shards/0/file",
        "/shards/0/size", "/shards/0/sha256", "/attributes/spec"}) {
    const nlohmann::json::json_pointer place(pointer);
    nlohmann::json without = good;
    if (place.back() == "0") {
      without["shards"].clear();
    } else {
      without[place.parent_pointer()].erase(place.back());
    }
    EXPECT_THAT(WhyNot(json::DumpPretty(without) + "\n"), HasSubstr("digest")) << pointer;
    for (const nlohmann::json& odd :
         {nlohmann::json(), nlohmann::json(-1), nlohmann::json(1.5), nlohmann::json(true),
          nlohmann::json("x"), nlohmann::json::array({1}), nlohmann::json::object()}) {
      nlohmann::json wrong = good;
      wrong[place] = odd;
      EXPECT_FALSE(ParseManifest(json::DumpPretty(wrong) + "\n").ok()) << pointer << " " << odd;
    }
  }
}

class MadeUpTest : public ::testing::Test {
 protected:
  // What is said of a checkpoint whose only shard is this file, which its manifest names rightly.
  std::string WhyNotOf(const std::string& file, const std::string& content) {
    const std::string folder = absl::StrCat("uid/", NameOf(kId), "/");
    const Manifest manifest{
        .id = kId, .shards = {{file, content.size(), bytes::Sha256Hex(content)}}, .attributes = {}};
    if (file.find('/') == std::string::npos && !file.empty()) blobs_.Set(folder + file, content);
    blobs_.Set(folder + kManifestName, ToText(manifest));
    return std::string(CheckpointStore(blobs_, "uid").Load(kId).status().message());
  }

  storage::MemoryBlobStore blobs_;
};

TEST_F(MadeUpTest, AShardIsNeverReadFromOutsideOfItsFolder) {
  blobs_.Set("secret", "abc");
  for (const char* file : {"", ".hidden", "..", "../../secret", "/etc/hostname", "a/b"}) {
    EXPECT_THAT(WhyNotOf(file, "abc"), HasSubstr("outside of its folder")) << file;
  }
}

TEST_F(MadeUpTest, AShardIsATensorFileOfThisState) {
  EXPECT_THAT(WhyNotOf("a", "abc"), HasSubstr("shard a: not a whole safetensors file"));
  EXPECT_THAT(WhyNotOf("a", *Encode({}, {})), HasSubstr("shard a is of another state"));
  EXPECT_THAT(WhyNotOf("a", *Encode({}, {{"state", NameOf({1, 2, 4})}})),
              HasSubstr("shard a is of another state"));
  EXPECT_EQ(WhyNotOf("a", *Encode({}, {{"state", NameOf(kId)}})), "");
}

}  // namespace
}  // namespace starling::checkpoint
