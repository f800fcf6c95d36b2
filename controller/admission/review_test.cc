// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/review.h"

#include <string>

#include "api/spec/test_job.h"
#include "common/json/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::admission {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

Json CreateReview(Json object) {
  return {{"apiVersion", "admission.k8s.io/v1"},
          {"kind", "AdmissionReview"},
          {"request",
           {{"uid", "u1"},
            {"kind", {{"group", "starling.dev"}, {"version", "v1alpha1"}, {"kind", "TrainingJob"}}},
            {"operation", "CREATE"},
            {"name", "digits"},
            {"namespace", "default"},
            {"object", std::move(object)},
            {"oldObject", nullptr}}}};
}

Json UpdateReview(Json before, Json after) {
  Json review = CreateReview(std::move(after));
  review["request"]["operation"] = "UPDATE";
  review["request"]["oldObject"] = std::move(before);
  return review;
}

Json ResponseTo(const Json& review) {
  const auto answer = Review(review);
  EXPECT_TRUE(answer.ok()) << answer.status();
  if (!answer.ok()) return {};
  EXPECT_EQ((*answer)["apiVersion"], "admission.k8s.io/v1");
  EXPECT_EQ((*answer)["kind"], "AdmissionReview");
  EXPECT_EQ((*answer)["response"]["uid"], "u1");
  return (*answer)["response"];
}

// The words of a refusal; "" if it was allowed.
std::string Refusal(const Json& review) {
  const Json response = ResponseTo(review);
  return response["allowed"] == true ? "" : response["status"]["message"].get<std::string>();
}

TEST(Review, AllowsAGoodJobAndSaysNothingMore) {
  EXPECT_EQ(ResponseTo(CreateReview(spec::DigitsJob())), Json({{"uid", "u1"}, {"allowed", true}}));
}

TEST(Review, RefusesInTheWordsOfTheCliWithEveryPath) {
  const Json job = spec::DigitsJobWith(
      {"spec.preset=horowod", "spec.optimizer.sgd.nesterov=true", "spec.stop.target.metric=x"});
  const Json response = ResponseTo(CreateReview(job));
  EXPECT_EQ(response["allowed"], false);
  EXPECT_EQ(response["status"]["code"], 422);
  EXPECT_EQ(response["status"]["reason"], "Invalid");
  EXPECT_EQ(response["status"]["message"], spec::ErrorsOf(job));
  EXPECT_THAT(response["status"]["details"]["causes"][0]["field"].get<std::string>(),
              StartsWith("spec."));
}

TEST(Review, SaysWhatCelCannot) {
  EXPECT_THAT(Refusal(CreateReview(spec::DigitsJobWith({"spec.preset=horowod"}))),
              HasSubstr("did you mean \"horovod\"?"));
  EXPECT_THAT(Refusal(CreateReview(spec::DigitsJobWith({"spec.optimizer.sgd.nesterov=true"}))),
              HasSubstr("spec.optimizer.sgd.nesterov: needs spec.optimizer.sgd.momentum"));
  EXPECT_THAT(Refusal(CreateReview(spec::DigitsJobWith(
                  {R"(spec.replicaSpecs.worker.template={"spec":{"restartPolicy":"Always"}})"}))),
              HasSubstr("must be Never or left out"));
}

TEST(Review, AnEditOfARunningJobIsHeldToWhatMayChange) {
  const Json before = spec::DigitsJob();
  const std::string image = R"(spec.replicaSpecs.worker.template={"spec":{"nodeName":"a"}})";
  EXPECT_THAT(Refusal(UpdateReview(before, spec::DigitsJobWith({image}))),
              HasSubstr("spec.replicaSpecs.worker.template: must not change while the job runs"));
  EXPECT_EQ(Refusal(UpdateReview(before, spec::DigitsJobWith({"spec.stop.epochs=3"}))), "");
  const Json suspended = spec::DigitsJobWith({"spec.runPolicy.suspend=true"});
  EXPECT_EQ(Refusal(UpdateReview(suspended, spec::DigitsJobWith({image}))), "");
  EXPECT_THAT(
      Refusal(UpdateReview(suspended, spec::DigitsJobWith({"spec.runPolicy.managedBy=a.b/c"}))),
      HasSubstr("spec.runPolicy.managedBy: never changes"));
}

TEST(Review, AnEditThatLeavesABadSpecAloneIsAllowed) {
  Json before = spec::DigitsJobWith({"spec.preset=gone"});
  Json after = before;
  after["metadata"]["labels"] = {{"a", "b"}};
  EXPECT_EQ(Refusal(UpdateReview(before, after)), "");
  after["spec"]["seed"] = 2;
  EXPECT_THAT(Refusal(UpdateReview(before, after)), HasSubstr("there is no preset \"gone\""));
}

TEST(Review, WhatIsBeingDeletedMayBeEdited) {
  Json after = spec::DigitsJobWith({"spec.preset=gone"});
  EXPECT_NE(Refusal(UpdateReview(spec::DigitsJob(), after)), "");
  after["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  EXPECT_EQ(Refusal(UpdateReview(spec::DigitsJob(), after)), "");
}

TEST(Review, SubresourcesAndDeletionsAreNotItsBusiness) {
  Json review = CreateReview(Json{{"spec", 1}});
  EXPECT_NE(Refusal(review), "");
  review["request"]["subResource"] = "status";
  EXPECT_EQ(Refusal(review), "");
  review["request"].erase("subResource");
  for (const char* operation : {"DELETE", "CONNECT"}) {
    review["request"]["operation"] = operation;
    EXPECT_EQ(Refusal(review), "") << operation;
  }
}

TEST(Review, ANewJobIsNotHeldAgainstWhatIsSaidToBeAnOldOne) {
  Json review = CreateReview(spec::DigitsJobWith({"spec.seed=2"}));
  review["request"]["oldObject"] = spec::DigitsJob();
  EXPECT_EQ(Refusal(review), "");
}

TEST(Review, WhatIsMissingInARequestIsABadRequest) {
  const Json good = UpdateReview(spec::DigitsJob(), spec::DigitsJobWith({"spec.stop.epochs=3"}));
  ASSERT_EQ(Refusal(good), "");
  for (const char* member : {"kind", "object", "oldObject"}) {
    Json review = good;
    review["request"].erase(member);
    const Json response = ResponseTo(review);
    EXPECT_EQ(response["allowed"], false) << member;
    EXPECT_EQ(response["status"]["code"], 400) << member;
    EXPECT_EQ(response["status"]["reason"], "BadRequest");
    EXPECT_EQ(response["status"]["status"], "Failure");
    EXPECT_THAT(response["status"]["message"].get<std::string>(), HasSubstr("must be objects"));
  }
  Json create = CreateReview(spec::DigitsJob());
  create["request"].erase("oldObject");
  EXPECT_EQ(Refusal(create), "");
}

TEST(Review, OtherVersionsKindsAndOperationsAreRefusedByName) {
  Json review = CreateReview(spec::DigitsJob());
  review["request"]["kind"]["version"] = "v2";
  EXPECT_THAT(Refusal(review), HasSubstr("starling.dev/v2 is not known to this controller"));
  review["request"]["kind"] = {{"group", ""}, {"version", "v1"}, {"kind", "Pod"}};
  EXPECT_THAT(Refusal(review),
              HasSubstr("reviews TrainingJobs and their templates of starling.dev only"));
  review["request"]["operation"] = "PATCH";
  EXPECT_THAT(Refusal(review), HasSubstr("not \"PATCH\""));
  review["request"]["operation"] = std::string(100, 'P');
  EXPECT_THAT(Refusal(review), HasSubstr("not \"" + std::string(32, 'P') + "\""));
  Json foreign = CreateReview(spec::DigitsJob());
  foreign["request"]["kind"]["group"] = "example.org";
  EXPECT_THAT(Refusal(foreign), HasSubstr("reviews TrainingJobs"));
  foreign["request"]["kind"] = {
      {"group", "starling.dev"}, {"version", std::string(100, 'v')}, {"kind", "TrainingJob"}};
  EXPECT_THAT(Refusal(foreign), HasSubstr("/" + std::string(32, 'v') + " is not known"));
}

TEST(Review, WhatItDoesNotKnowIsABadRequestAndNoInvalidObject) {
  const auto status = [](const char* member, const Json& value) {
    Json review = CreateReview(spec::DigitsJob());
    review["request"][member] = value;
    return ResponseTo(review)["status"];
  };
  const Json version = {{"group", "starling.dev"}, {"version", "v2"}, {"kind", "TrainingJob"}};
  const Json kind = {{"group", "starling.dev"}, {"version", "v1alpha1"}, {"kind", "Pod"}};
  for (const Json& told :
       {status("operation", "PATCH"), status("kind", version), status("kind", kind)}) {
    EXPECT_EQ(told["code"], 400) << told;
    EXPECT_EQ(told["reason"], "BadRequest");
    EXPECT_FALSE(told.contains("details"));
  }
}

TEST(Review, AUidHasAtMost128Characters) {
  for (const std::size_t length : {128U, 129U}) {
    Json review = CreateReview(spec::DigitsJob());
    review["request"]["uid"] = std::string(length, 'u');
    EXPECT_EQ(Review(review).ok(), length == 128) << length;
  }
}

TEST(Review, WhatIsNoReviewGetsNoAnswer) {
  Json v1beta1 = CreateReview(spec::DigitsJob());
  v1beta1["apiVersion"] = "admission.k8s.io/v1beta1";
  Json another = CreateReview(spec::DigitsJob());
  another["kind"] = "TokenReview";
  Json no_uid = CreateReview(spec::DigitsJob());
  no_uid["request"].erase("uid");
  Json long_uid = CreateReview(spec::DigitsJob());
  long_uid["request"]["uid"] = std::string(100'000, 'u');
  for (const Json& wrong :
       {Json(), Json(3), Json::array(), Json::object(), v1beta1, another, no_uid, long_uid,
        Json{{"kind", "AdmissionReview"}, {"apiVersion", "admission.k8s.io/v1"}, {"request", 7}}}) {
    EXPECT_EQ(Review(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(Review, EveryMemberMayHaveAnyTypeAndNothingBreaks) {
  const Json good = UpdateReview(spec::DigitsJob(), spec::DigitsJobWith({"spec.seed=2"}));
  const Json flat = good.flatten();
  int refused = 0;
  for (const Json& odd : {Json(nullptr), Json(1.5), Json(-1), Json("x"), Json(true), Json::array(),
                          Json::object(), Json::array({Json::object()})}) {
    for (const auto& [pointer, value] : flat.items()) {
      // Each member on the way down, too.
      for (std::size_t end = pointer.find('/', 1); end != std::string::npos;
           end = end == pointer.size() ? std::string::npos
                                       : std::min(pointer.find('/', end + 1), pointer.size())) {
        Json wrong = good;
        wrong[Json::json_pointer(pointer.substr(0, end))] = odd;
        const auto answer = Review(wrong);
        if (answer.ok() && (*answer)["response"]["allowed"] == false) ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(ReviewText, HostileTextIsRefusedWithinItsBounds) {
  const std::string deep = R"({"kind":"AdmissionReview","request":)" + std::string(100'000, '[');
  const std::string wide = "[" + std::string(900'000, '0') + "]";
  std::string many = "[0";
  for (int i = 0; i < 500'000; ++i) many += ",0";
  many += "]";
  for (const std::string& text :
       {std::string(), std::string("{"), deep, wide, many, std::string(kLargestReview + 1, ' '),
        std::string("\xff\xfe"), std::string(R"({"kind":"a","kind":"b"})")}) {
    EXPECT_EQ(ReviewText(text).status().code(), absl::StatusCode::kInvalidArgument)
        << text.substr(0, 40);
  }
  EXPECT_TRUE(ReviewText(json::Dump(CreateReview(spec::DigitsJob()))).ok());
}

TEST(ReviewText, ATemplateTooDeepIsAnsweredWithItsPath) {
  Json deep = "x";
  for (int i = 0; i < 100; ++i) deep = Json{{"a", deep}};
  Json job = spec::DigitsJob();
  job["spec"]["replicaSpecs"]["worker"]["template"] = {{"spec", deep}};
  const auto answer = ReviewText(json::Dump(CreateReview(job)));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ((*answer)["response"]["allowed"], false);
  EXPECT_THAT((*answer)["response"]["status"]["message"].get<std::string>(),
              HasSubstr("spec.replicaSpecs.worker.template"));
}

}  // namespace
}  // namespace starling::admission
