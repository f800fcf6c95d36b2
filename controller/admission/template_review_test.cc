// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/template_review.h"

#include <string>

#include "absl/strings/escaping.h"
#include "controller/admission/review.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::admission {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json Job(bool with_ref = true) {
  Json job = {
      {"apiVersion", "starling.dev/v1alpha1"},
      {"kind", "TrainingJob"},
      {"metadata", {{"name", "digits"}}},
      {"spec",
       {{"workload", {{"classification", {{"model", {{"mlp", Json::object()}}}}}}},
        {"dataset", {{"train", {{"synthetic", Json::object()}}}}},
        {"replicaSpecs",
         {{"worker", {{"replicas", 1}, {"minReplicas", 1}}}, {"coordinator", Json::object()}}},
        {"runPolicy", Json::object()}}}};
  if (with_ref) job["spec"]["templateRef"] = {{"name", "small"}};
  return job;
}

Json Asking(const std::string& operation, const Json& object, const Json& old = nullptr) {
  return {{"apiVersion", "admission.k8s.io/v1"},
          {"kind", "AdmissionReview"},
          {"request",
           {{"uid", "u"},
            {"kind", {{"group", "starling.dev"}, {"version", "v1alpha1"}, {"kind", "TrainingJob"}}},
            {"operation", operation},
            {"namespace", "team"},
            {"object", object},
            {"oldObject", old}}}};
}

// A template that only namespace "team" has.
absl::StatusOr<Json> OfTeam(const spec::TemplateName& name) {
  if (name.ns != "team" || name.name != "small") return absl::NotFoundError("none");
  return Json{{"apiVersion", "starling.dev/v1alpha1"},
              {"kind", "TrainingTemplate"},
              {"metadata", {{"name", "small"}, {"uid", "u"}, {"generation", 1}}},
              {"spec",
               {{"defaults", {{"stop", {{"epochs", 3}}}}},
                {"bounds", {{"fields", {{{"field", "stop.epochs"}, {"maximum", 5}}}}}}}}};
}

Json ResponseTo(const Json& review, const spec::FindTemplate& find = OfTeam) {
  const auto answer = LayTemplate(review, find);
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ((*answer)["response"]["uid"], "u");
  return (*answer)["response"];
}

Json Becomes(const Json& review) {
  const Json response = ResponseTo(review);
  EXPECT_EQ(response["allowed"], true);
  const Json& object = review["request"]["object"];
  if (!response.contains("patch")) return object;
  std::string patch;
  EXPECT_TRUE(absl::Base64Unescape(response["patch"].get<std::string>(), &patch));
  return object.patch(Json::parse(patch));
}

TEST(TemplateReview, FillsAJobInAndTheOtherReviewTakesIt) {
  const Json job = Becomes(Asking("CREATE", Job()));
  EXPECT_EQ(job["spec"]["stop"]["epochs"], 3);
  EXPECT_FALSE(job["metadata"].contains("namespace")) << "which the request alone has named";
  EXPECT_EQ((*Review(Asking("CREATE", job)))["response"]["allowed"], true);
  EXPECT_EQ((*Review(Asking("CREATE", Job())))["response"]["allowed"], false)
      << "a job that has passed by the first";
  Json longer = job;
  longer["spec"]["stop"]["epochs"] = 6;
  const Json refused =
      (*Review(Asking("UPDATE", Becomes(Asking("UPDATE", longer, job)), job)))["response"];
  EXPECT_EQ(refused["status"]["details"]["causes"][0]["field"], "spec.stop.epochs");
}

TEST(TemplateReview, TheObjectSaysWhereItIsWhereTheRequestDoesNot) {
  Json job = Job();
  job["metadata"]["namespace"] = "team";
  Json review = Asking("CREATE", job);
  review["request"].erase("namespace");
  EXPECT_EQ(Becomes(review)["spec"]["stop"]["epochs"], 3);
}

// What a job was given is kept by its changes alone: a new one asks the template.
TEST(TemplateReview, ANewJobIsNotHeldAgainstWhatIsSaidToBeAnOldOne) {
  EXPECT_EQ(Becomes(Asking("CREATE", Job(), Job()))["spec"]["stop"]["epochs"], 3);
  EXPECT_EQ(Becomes(Asking("UPDATE", Job(), Job())), Job());
}

TEST(TemplateReview, LeavesOtherJobsAlone) {
  EXPECT_FALSE(ResponseTo(Asking("CREATE", Job(false))).contains("patch"));
  Json marked = Job(false);
  marked["metadata"]["annotations"][spec::kTemplateNote] = "{}";
  EXPECT_EQ(Becomes(Asking("CREATE", marked)), Job(false));
}

TEST(TemplateReview, RefusesWhereThereIsNoneOrNobodyCanTell) {
  Json job = Job();
  job["spec"]["templateRef"]["name"] = "large";
  const Json refused = ResponseTo(Asking("CREATE", job));
  EXPECT_EQ(refused["allowed"], false);
  EXPECT_EQ(refused["status"]["code"], 422);
  EXPECT_EQ(refused["status"]["details"]["causes"][0]["field"], "spec.templateRef.name");
  const Json away = ResponseTo(Asking("CREATE", Job()), [](const spec::TemplateName&) {
    return absl::StatusOr<Json>(absl::UnavailableError("the API server does not answer"));
  });
  EXPECT_EQ(away["allowed"], false);
  EXPECT_THAT(away["status"]["message"].get<std::string>(), HasSubstr("does not answer"));
}

TEST(TemplateReview, WhatIsNoReviewOrNoJobIsNobodysToFill) {
  EXPECT_FALSE(LayTemplate(Json::array(), OfTeam).ok());
  EXPECT_FALSE(ResponseTo(Asking("DELETE", Job())).contains("patch"));
  EXPECT_FALSE(ResponseTo(Asking("CREATE", nullptr)).contains("patch"));
  for (const Json& ref : {Json("small"), Json(1), Json::object(), Json{{"name", Json::array()}}}) {
    Json job = Job();
    job["spec"]["templateRef"] = ref;
    EXPECT_FALSE(ResponseTo(Asking("CREATE", job)).contains("patch")) << ref;
  }
  for (const Json& metadata : {Json(), Json(5), Json("text"), Json::array()}) {
    Json job = Job();
    job["metadata"] = metadata;
    EXPECT_FALSE(ResponseTo(Asking("CREATE", job)).contains("patch")) << metadata;
  }
}

TEST(TemplateReview, WhatIsBeingDeletedStaysAsItIs) {
  Json job = Job(false);
  job["metadata"]["annotations"][spec::kTemplateNote] = "{}";
  EXPECT_TRUE(ResponseTo(Asking("UPDATE", job, job)).contains("patch")) << "nobody gave it this";
  job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  EXPECT_FALSE(ResponseTo(Asking("UPDATE", job, job)).contains("patch"));
}

}  // namespace
}  // namespace starling::admission
