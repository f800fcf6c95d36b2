// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/http_status.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"

namespace starling::kube {
namespace {

Json Parse(const std::string& text) {
  const auto object = ParseServerJson(text);
  EXPECT_TRUE(object.ok()) << object.status();
  return object.ok() ? *object : Json();
}

TEST(ServerJson, WhoOwnsWhichFieldIsSkippedAndNothingElse) {
  EXPECT_EQ(
      Parse(R"({"metadata":{"name":"a","managedFields":[{"f:x":{"s":"]}\"["}},[]],"uid":"u"},)"
            R"("items":[{"metadata":{"managedFields":[]}},{"metadata":{"name":"b"}}]})"),
      Json::parse(R"({"metadata":{"name":"a","managedFields":[],"uid":"u"},
                            "items":[{"metadata":{"managedFields":[]}},{"metadata":{"name":"b"}}]})"));
  const Json user = {{"data", {{"note", R"(said "managedFields":[1] and more)"}}}};
  EXPECT_EQ(Parse(user.dump()), user) << "a text of the user's that looks like it";
}

TEST(ServerJson, AnAnswerThatWasCutIsStillAnError) {
  EXPECT_FALSE(ParseServerJson(R"({"metadata":{"managedFields":[{"a":1}})").ok());
  EXPECT_FALSE(ParseServerJson(R"({"metadata":{"managedFields":["a)").ok());
}

}  // namespace
}  // namespace starling::kube
