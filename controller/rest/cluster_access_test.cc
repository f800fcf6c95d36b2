// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/cluster_access.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/rest/rights.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/runtime/forwarding_kube_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::service {
namespace {

using kube::Json;
using ::testing::HasSubstr;
using ::testing::Not;

// An API server of which only the two reviews are asked.
class Reviews : public runtime::ForwardingKubeClient {
 public:
  explicit Reviews(kube::KubeClient& inner) : ForwardingKubeClient(inner) {}

  absl::StatusOr<Json> Create(const kube::ResourceKind& kind, const Json& object) override {
    ++asked[std::string(kind.kind)];
    if (away) return absl::UnavailableError("API server: no answer to " + object.dump());
    Json review = object;
    const Json& spec = object["spec"];
    if (kind.kind == "TokenReview") {
      const std::string audience = spec.contains("audiences") ? spec["audiences"][0] : "";
      const auto found = names.find({spec["token"].get<std::string>(), audience});
      review["status"]["authenticated"] = found != names.end();
      if (found == names.end()) return review;
      review["status"]["user"] = {{"username", found->second}, {"groups", {"all", "of-tests"}}};
      review["status"]["audiences"] = Json::array({audience.empty() ? "api" : audience});
      return review;
    }
    last = spec;
    const Json& what = spec["resourceAttributes"];
    const std::string action =
        absl::StrCat(what["verb"].get<std::string>(), " ", what["resource"].get<std::string>(), " ",
                     what.value("namespace", "*"), "/", what.value("name", "*"));
    review["status"]["allowed"] = rights.contains({spec["user"].get<std::string>(), action});
    return review;
  }

  std::map<std::pair<std::string, std::string>, std::string> names;  // by token and audience
  std::set<std::pair<std::string, std::string>> rights;
  std::map<std::string, int> asked;
  Json last;
  bool away = false;
};

class ClusterAccessTest : public ::testing::Test {
 protected:
  ClusterAccessTest() {
    reviews_.names[{"alices", ""}] = "alice";
    reviews_.names[{"bobs", ""}] = "bob";
    reviews_.names[{"for-us", "starling"}] = "alice";
    for (const char* right : {"get trainingjobs a/j", "list trainingjobs a/*", "list pods a/*",
                              "delete trainingjobs a/j"}) {
      reviews_.rights.emplace("alice", right);
    }
    reviews_.rights.emplace("bob", "list pods a/*");
  }

  std::variant<Caller, rest::Problem> Admit(const std::string& method, const std::string& target,
                                            http::Headers headers) {
    const auto call = rest::FindRoute(method, target);
    EXPECT_TRUE(std::holds_alternative<rest::Call>(call)) << target;
    http::Request request{.method = method, .target = target, .body = "", .headers = {}};
    request.headers = std::move(headers);
    return access_.Admit(request, std::get<rest::Call>(call), [this](const std::string& name) {
      return name == limited_ ? std::make_optional(rest::MakeProblem("TooManyRequests", name))
                              : std::nullopt;
    });
  }
  // The problem's code, or nothing.
  std::string Code(const std::string& method, const std::string& target, http::Headers headers) {
    const auto admitted = Admit(method, target, std::move(headers));
    const auto* problem = std::get_if<rest::Problem>(&admitted);
    if (problem == nullptr) return "";
    EXPECT_THAT(problem->detail, Not(HasSubstr("alices")));
    EXPECT_THAT(problem->detail, Not(HasSubstr("forged")));
    return std::string(problem->kind->code);
  }
  std::string Code(const std::string& token, const std::string& target = kJob) {
    return Code("GET", target, {{"Authorization", "Bearer " + token}});
  }

  static constexpr const char* kJob = "/v1/namespaces/a/jobs/j";
  clock::FakeClock clock_;
  std::unique_ptr<kube::KubeClient> store_ = kube::OpenEmbeddedKubeClient(clock_, {}).value();
  Reviews reviews_{*store_};
  std::vector<std::string> opened_;
  std::string limited_;  // who asks for too much
  ClusterAccess access_{reviews_,
                        [this](const std::string& token) {
                          opened_.push_back(token);
                          kube::ClusterConfig config;
                          config.server = "http://127.0.0.1:1";
                          absl::StatusOr<std::shared_ptr<kube::HttpKubeClient>> client =
                              kube::OpenHttpKubeClient(config, {});
                          return client;
                        },
                        clock_,
                        {.unknown_tokens_per_second = 10, .most_tokens = 100}};
};

TEST_F(ClusterAccessTest, WhoIsKnownAndHasTheRightComesIn) {
  const auto admitted = Admit("GET", kJob, {{"Authorization", "bearer alices"}});
  const auto* caller = std::get_if<Caller>(&admitted);
  ASSERT_NE(caller, nullptr);
  EXPECT_EQ(caller->name, "alice");
  EXPECT_EQ(caller->client, nullptr) << "the service's own copy is read";
  EXPECT_EQ(reviews_.last["groups"].size(), 2U) << "rights come by groups too";
}

TEST_F(ClusterAccessTest, EveryoneElseIsToldNothing) {
  EXPECT_EQ(Code("forged"), "Unauthorized");
  EXPECT_EQ(Code("bobs"), "Forbidden");
  EXPECT_EQ(Code("alices", "/v1/namespaces/b/jobs/j"), "Forbidden");
  EXPECT_EQ(Code("alices", "/v1/jobs"), "Forbidden") << "one namespace is not all of them";
  EXPECT_EQ(Code("GET", kJob, {}), "Unauthorized");
  EXPECT_EQ(Code("GET", kJob, {{"Authorization", "Basic alices"}}), "Unauthorized");
  EXPECT_EQ(Code("GET", kJob, {{"Authorization", "Bearer "}}), "Unauthorized");
  EXPECT_EQ(Code("GET", kJob, {{"Authorization", "Bearer a b"}}), "Unauthorized");
}

TEST_F(ClusterAccessTest, WhatEverybodyMayReadAsksNobody) {
  EXPECT_EQ(Code("forged", "/v1/version"), "");
  EXPECT_TRUE(reviews_.asked.empty());
}

TEST_F(ClusterAccessTest, WhoMayListPodsButNotReadTheJobDoesNotLearnOfIt) {
  EXPECT_EQ(Code("alices", std::string(kJob) + "/pods"), "");
  EXPECT_EQ(Code("bobs", std::string(kJob) + "/pods"), "Forbidden");
}

TEST_F(ClusterAccessTest, WritesHaveTheCallersTokenAndNoOther) {
  const auto admitted = Admit("DELETE", kJob, {{"Authorization", "Bearer alices"}});
  ASSERT_TRUE(std::holds_alternative<Caller>(admitted));
  EXPECT_NE(std::get<Caller>(admitted).client, nullptr);
  EXPECT_THAT(opened_, ::testing::ElementsAre("alices"));
}

TEST_F(ClusterAccessTest, ATokenForThisServiceAloneReadsOnly) {
  EXPECT_EQ(Code("for-us"), "");
  EXPECT_EQ(Code("DELETE", kJob, {{"Authorization", "Bearer for-us"}}), "Forbidden");
  EXPECT_EQ(Code("for-us", std::string(kJob) + "/pods"), "Forbidden")
      << "pods are read with the caller's token, which the API server would not take";
  EXPECT_TRUE(opened_.empty());
}

TEST_F(ClusterAccessTest, PagesOfOtherServersWriteNothing) {
  const auto from = [&](const char* origin) {
    return Code("DELETE", kJob,
                {{"Authorization", "Bearer alices"}, {"Host", "api:443"}, {"Origin", origin}});
  };
  EXPECT_EQ(from("https://api:443"), "");
  EXPECT_EQ(from("https://evil"), "ForeignOrigin");
  EXPECT_EQ(from("https://api:4430"), "ForeignOrigin");
  EXPECT_EQ(from("null"), "ForeignOrigin");
  EXPECT_EQ(Code("GET", kJob, {{"Authorization", "Bearer alices"}, {"Origin", "https://evil"}}),
            "");
}

TEST_F(ClusterAccessTest, AnswersCountForTenSeconds) {
  EXPECT_EQ(Code("alices"), "");
  EXPECT_EQ(Code("alices"), "");
  EXPECT_EQ(reviews_.asked["TokenReview"], 1);
  EXPECT_EQ(reviews_.asked["SubjectAccessReview"], 1);
  reviews_.rights.clear();
  clock_.Advance(absl::Seconds(9));
  EXPECT_EQ(Code("alices"), "");
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(Code("alices"), "Forbidden");
  reviews_.names.clear();
  clock_.Advance(absl::Seconds(11));
  EXPECT_EQ(Code("alices"), "Unauthorized");
}

TEST_F(ClusterAccessTest, NobodyComesInWhileNobodyCanJudge) {
  reviews_.away = true;
  EXPECT_EQ(Code("alices"), "Unavailable");
  EXPECT_EQ(Code("GET", "/v1/version", {}), "");
}

TEST_F(ClusterAccessTest, StrangersTakeNoRoomAndNoTurnFromWhoIsKnown) {
  EXPECT_EQ(Code("alices"), "");
  clock_.Advance(absl::Seconds(11));
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    refused += Code(absl::StrCat("forged-", i)) == "TooManyRequests" ? 1 : 0;
  }
  EXPECT_GT(refused, 900);
  EXPECT_LT(reviews_.asked["TokenReview"], 100) << "the API server is spared";
  EXPECT_EQ(Code("alices"), "") << "it was good before";
  clock_.Advance(absl::Hours(2));
  access_.JudgeStreams();
  EXPECT_EQ(access_.tokens(), 0U);
}

TEST_F(ClusterAccessTest, WhoAsksForTooMuchIsRefusedBeforeItsRightsAreAskedAbout) {
  EXPECT_EQ(Code("bobs"), "Forbidden");
  const int asked = reviews_.asked["SubjectAccessReview"];
  limited_ = "bob";
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Code("bobs", absl::StrCat("/v1/namespaces/a/jobs/j", i)), "TooManyRequests");
  }
  EXPECT_EQ(reviews_.asked["SubjectAccessReview"], asked);
  EXPECT_EQ(Code("alices"), "") << "others go on";
}

TEST_F(ClusterAccessTest, MoreTokensThanThereIsRoomForAreForgotten) {
  for (int i = 0; i < 300; ++i) {
    clock_.Advance(absl::Seconds(1));
    reviews_.names[{absl::StrCat("t", i), ""}] = "alice";
    EXPECT_EQ(Code(absl::StrCat("t", i)), "");
    EXPECT_LE(access_.tokens(), 100U);
  }
}

TEST_F(ClusterAccessTest, StreamsEndWithTheTokenOrTheRight) {
  const auto open = [&](const std::string& target) {
    auto admitted = Admit("GET", target, {{"Authorization", "Bearer alices"}});
    return std::get<Caller>(std::move(admitted)).permit;
  };
  const std::string watch = std::string(kJob) + "?watch=1";
  EXPECT_EQ(open(kJob), nullptr) << "no stream";
  const auto first = open(watch);
  ASSERT_NE(first, nullptr);
  clock_.Advance(absl::Seconds(61));
  access_.JudgeStreams();
  EXPECT_EQ(first->ended(), nullptr);
  reviews_.rights.erase({"alice", "get trainingjobs a/j"});
  access_.JudgeStreams();
  EXPECT_EQ(first->ended(), nullptr) << "not yet";
  clock_.Advance(absl::Seconds(61));
  reviews_.away = true;
  access_.JudgeStreams();
  EXPECT_EQ(first->ended(), nullptr) << "nobody can judge";
  reviews_.away = false;
  clock_.Advance(absl::Seconds(61));
  access_.JudgeStreams();
  EXPECT_STREQ(first->ended(), "Forbidden");

  reviews_.rights.emplace("alice", "get trainingjobs a/j");
  clock_.Advance(absl::Seconds(11));
  const auto second = open(watch);
  reviews_.names.clear();
  clock_.Advance(absl::Seconds(61));
  access_.JudgeStreams();
  EXPECT_STREQ(second->ended(), "TokenExpired");
}

}  // namespace
}  // namespace starling::service
