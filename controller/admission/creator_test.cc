// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/creator.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::admission {
namespace {

using Json = nlohmann::json;

Json Object(const Json& annotations) {
  Json object = {{"metadata", {{"name", "a"}}}, {"spec", {{"seed", 1}}}};
  if (!annotations.is_null()) object["metadata"]["annotations"] = annotations;
  return object;
}

Json Asking(const std::string& operation, const Json& object, const Json& old = nullptr) {
  return {{"apiVersion", "admission.k8s.io/v1"},
          {"kind", "AdmissionReview"},
          {"request",
           {{"uid", "u"},
            {"operation", operation},
            {"userInfo", {{"username", "alice"}}},
            {"object", object},
            {"oldObject", old}}}};
}

// What the object becomes by the answer, whose form is checked on the way.
Json Becomes(const Json& review) {
  const auto answer = NoteCreator(review);
  EXPECT_TRUE(answer.ok()) << answer.status();
  const Json& response = (*answer)["response"];
  EXPECT_EQ(response["uid"], "u");
  EXPECT_EQ(response["allowed"], true);
  const Json& object = review["request"]["object"];
  if (!response.contains("patch")) return object;
  EXPECT_EQ(response["patchType"], "JSONPatch");
  std::string patch;
  EXPECT_TRUE(absl::Base64Unescape(response["patch"].get<std::string>(), &patch));
  return object.patch(Json::parse(patch));
}

const Json kAlices = {{kCreatedBy, "alice"}};
const Json kBobs = {{kCreatedBy, "bob"}};

TEST(Creator, IsWhoeverCreatesWhateverTheObjectSays) {
  EXPECT_EQ(Becomes(Asking("CREATE", Object(nullptr))), Object(kAlices));
  EXPECT_EQ(Becomes(Asking("CREATE", Object(kBobs))), Object(kAlices));
  EXPECT_EQ(Becomes(Asking("CREATE", Object({{"a/b", "c"}}))),
            Object({{"a/b", "c"}, {kCreatedBy, "alice"}}));
}

TEST(Creator, StaysWhoItWasOnEveryChange) {
  EXPECT_EQ(Becomes(Asking("UPDATE", Object(kAlices), Object(kBobs))), Object(kBobs));
  EXPECT_EQ(Becomes(Asking("UPDATE", Object(nullptr), Object(kBobs))), Object(kBobs));
  EXPECT_EQ(Becomes(Asking("UPDATE", Object(kAlices), Object(nullptr))), Object(Json::object()))
      << "nobody knows any more";
}

TEST(Creator, ChangesNothingWhereItIsRight) {
  EXPECT_FALSE(
      NoteCreator(Asking("CREATE", Object(kAlices))).value()["response"].contains("patch"));
  EXPECT_FALSE(NoteCreator(Asking("UPDATE", Object(kBobs), Object(kBobs)))
                   .value()["response"]
                   .contains("patch"));
  EXPECT_FALSE(
      NoteCreator(Asking("DELETE", nullptr, Object(kBobs))).value()["response"].contains("patch"));
}

TEST(Creator, OddReviewsAreAllowedOrHaveNobodyToAnswerTo) {
  EXPECT_FALSE(NoteCreator(Json::array()).ok());
  EXPECT_FALSE(NoteCreator({{"kind", "AdmissionReview"}}).ok());
  Json odd = Asking("CREATE", Object(nullptr));
  odd["request"]["object"] = "text";
  EXPECT_TRUE(NoteCreator(odd).ok());
  odd = Asking("CREATE", Object(nullptr));
  odd["request"]["object"]["metadata"] = 5;
  EXPECT_TRUE(NoteCreator(odd).ok());
  odd = Asking("CREATE", Object(Json::array({1})));
  EXPECT_TRUE(NoteCreator(odd).ok());
}

}  // namespace
}  // namespace starling::admission
