// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/http_status.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::kube {
namespace {

using ::testing::HasSubstr;

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

TEST(ServerJson, TextIsReadToItsEndAndMarksInItMeanNothing) {
  EXPECT_EQ(Parse(R"({"a":{"managedFields":["\\"]},"b":{"managedFields":["}]\""],"c":1}})"),
            Json::parse(R"({"a":{"managedFields":[]},"b":{"managedFields":[],"c":1}})"));
  EXPECT_EQ(Parse(R"({"managedFields":[{"a":[{}]}],"b":[2]})"),
            Json::parse(R"({"managedFields":[],"b":[2]})"));
}

http::Response Answer(int status, const std::string& body, const std::string& type) {
  http::Response answer;
  answer.status = status;
  answer.body = body;
  answer.content_type = type;
  return answer;
}

TEST(ServerStatus, CodesAreThoseOfTheDoor) {
  const std::pair<int, absl::StatusCode> codes[] = {
      {400, absl::StatusCode::kInvalidArgument},  {401, absl::StatusCode::kPermissionDenied},
      {403, absl::StatusCode::kPermissionDenied}, {404, absl::StatusCode::kNotFound},
      {405, absl::StatusCode::kInvalidArgument},  {406, absl::StatusCode::kInvalidArgument},
      {409, absl::StatusCode::kAborted},          {410, absl::StatusCode::kOutOfRange},
      {413, absl::StatusCode::kInvalidArgument},  {415, absl::StatusCode::kInvalidArgument},
      {422, absl::StatusCode::kInvalidArgument},  {429, absl::StatusCode::kResourceExhausted},
      {500, absl::StatusCode::kUnavailable},      {503, absl::StatusCode::kUnavailable},
      {418, absl::StatusCode::kUnavailable}};
  for (const auto& [http, code] : codes) {
    const std::string name = std::to_string(http);
    const Json told = {{"kind", "Status"}, {"code", http}, {"message", "why"}};
    EXPECT_EQ(StatusOfAnswer(Answer(http, told.dump(), "application/json")),
              absl::Status(code, "why"));
    EXPECT_EQ(StatusOfAnswer(Answer(http, " why\n", "text/plain")),
              absl::Status(code, "API server: status " + name + ": why"));
    EXPECT_EQ(StatusOfAnswer(Answer(http, "", "text/plain")),
              absl::Status(code, "API server: status " + name));
    EXPECT_EQ(StatusOfServer({.http = http, .reason = "", .message = ""}),
              absl::Status(code, "API server: status " + name));
  }
}

TEST(ServerStatus, ReasonsTellMoreThanCodes) {
  const auto code = [](const Json& told) { return StatusOfObject(told).code(); };
  EXPECT_EQ(code({{"code", 409}, {"reason", "AlreadyExists"}}), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code({{"code", 400}, {"reason", "Expired"}}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code({{"code", 400}, {"reason", "Gone"}}), absl::StatusCode::kOutOfRange);
  const Json quota = {{"code", 403}, {"message", "pods is forbidden: exceeded quota: q"}};
  EXPECT_EQ(code(quota), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code({{"code", 422}, {"message", "exceeded quota"}}),
            absl::StatusCode::kInvalidArgument);
  const auto causes = [](const char* field) -> Json {
    return {{"causes", Json::array({{{"field", "spec"}}, {{"field", field}}})}};
  };
  EXPECT_EQ(code({{"code", 422}, {"details", causes("metadata.uid")}}), absl::StatusCode::kAborted);
  EXPECT_EQ(code({{"code", 400}, {"details", causes("metadata.uid")}}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"code", 422}, {"details", causes("metadata.name")}}),
            absl::StatusCode::kInvalidArgument);
}

TEST(ServerStatus, OnlyAStatusOfThatAnswerIsBelieved) {
  for (const char* body : {R"({"kind":"Pod","code":404,"message":"why"})",
                           R"({"kind":"Status","code":200,"message":"why"})", "{"}) {
    EXPECT_THAT(std::string(StatusOfAnswer(Answer(404, body, "application/json")).message()),
                HasSubstr("API server: status 404: "))
        << body;
  }
  EXPECT_THAT(
      std::string(
          StatusOfAnswer(Answer(404, R"({"kind":"Status","code":404})", "text/plain")).message()),
      HasSubstr("status 404: {"));
}

TEST(ServerStatus, WhatItSaysIsShownInPartAndWithoutControlCharacters) {
  const auto message = [](const std::string& body) {
    return std::string(StatusOfAnswer(Answer(500, body, "text/plain")).message());
  };
  EXPECT_EQ(message("a\x1b[1m\nb"), "API server: status 500: a [1m b");
  EXPECT_EQ(message(std::string(200, 'x')), "API server: status 500: " + std::string(200, 'x'));
  EXPECT_EQ(message(std::string(201, 'x')),
            "API server: status 500: " + std::string(200, 'x') + "...");
}

TEST(ServerStatus, RedirectsAreNamed) {
  for (const int http : {300, 302, 399}) {
    http::Response answer = Answer(http, "", "text/plain");
    answer.headers = {{"Location", "https://elsewhere/"}};
    EXPECT_TRUE(absl::IsUnavailable(StatusOfAnswer(answer)));
    EXPECT_THAT(std::string(StatusOfAnswer(answer).message()),
                HasSubstr("redirect to \"https://elsewhere/\""));
  }
  http::Response far = Answer(302, "", "text/plain");
  far.headers = {{"Location", std::string(201, 'x')}};
  EXPECT_THAT(std::string(StatusOfAnswer(far).message()),
              HasSubstr("to \"" + std::string(200, 'x') + "...\""));
  EXPECT_EQ(StatusOfAnswer(Answer(400, "no", "text/plain")).message(),
            "API server: status 400: no");
  EXPECT_EQ(StatusOfAnswer(Answer(299, "no", "text/plain")).message(),
            "API server: status 299: no");
}

TEST(ObjectOfAnswer, IsAnObjectInASuccess) {
  for (const int http : {200, 201, 299}) {
    EXPECT_TRUE(ObjectOfAnswer(Answer(http, "{}", "application/json; charset=utf-8")).ok());
    EXPECT_TRUE(ProtobufOfAnswer(Answer(http, "x", "application/vnd.kubernetes.protobuf")).ok());
  }
  for (const int http : {199, 300}) {
    EXPECT_FALSE(ObjectOfAnswer(Answer(http, "{}", "application/json")).ok());
    EXPECT_FALSE(ProtobufOfAnswer(Answer(http, "x", "application/vnd.kubernetes.protobuf")).ok());
  }
  EXPECT_THAT(std::string(ObjectOfAnswer(Answer(200, "<html>", "text/html")).status().message()),
              HasSubstr("is text/html where JSON belongs"));
  EXPECT_THAT(std::string(ObjectOfAnswer(Answer(200, std::string(81, 'x'), std::string(61, 't')))
                              .status()
                              .message()),
              testing::AllOf(HasSubstr("is " + std::string(60, 't') + "... where"),
                             HasSubstr("begins: " + std::string(80, 'x') + "...")));
}

}  // namespace
}  // namespace starling::kube
