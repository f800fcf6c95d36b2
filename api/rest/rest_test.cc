// SPDX-License-Identifier: Apache-2.0
#include <ostream>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "api/rest/openapi.h"
#include "api/rest/problem.h"
#include "api/rest/router.h"
#include "api/rest/routes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace starling::rest {
namespace {

using ::testing::HasSubstr;

// Where a request goes: its route's id, or the problem's code.
std::string Goes(std::string_view method, std::string_view target) {
  const auto found = FindRoute(method, target);
  if (const auto* call = std::get_if<Call>(&found)) return std::string(call->route->id);
  return std::string(std::get<Problem>(found).kind->code);
}

TEST(Routes, KeepTheRulesOfTheTable) { EXPECT_EQ(CheckRoutes(), ""); }

TEST(Routes, EachIsFoundByItsOwnPath) {
  for (const Route& route : Routes()) {
    std::string path(route.path);
    for (const auto& [from, to] :
         {std::pair("{namespace}", "team"), std::pair("{name}", "a.b-1")}) {
      if (const auto at = path.find(from); at != std::string::npos) {
        path.replace(at, std::string(from).size(), to);
      }
    }
    EXPECT_EQ(Goes(route.method, path), route.id);
    const auto found = FindRoute(route.method, path);
    EXPECT_EQ(std::get<Call>(found).name,
              route.path.find("{name}") == std::string::npos ? "" : "a.b-1");
  }
}

struct TargetCase {
  const char* method;
  const char* target;
  const char* goes;
};
std::ostream& operator<<(std::ostream& out, const TargetCase& c) {
  return out << c.method << " " << c.target;
}
class Targets : public ::testing::TestWithParam<TargetCase> {};

TEST_P(Targets, GoWhereTheTableSays) {
  EXPECT_EQ(Goes(GetParam().method, GetParam().target), GetParam().goes);
}

constexpr TargetCase kTargets[] = {
    {"HEAD", "/v1/version", "getVersion"},
    {"GET", "/", "NoSuchRoute"},
    {"GET", "/v1", "NoSuchRoute"},
    {"GET", "/v1/jobs/", "NoSuchRoute"},
    {"GET", "//v1/jobs", "NoSuchRoute"},
    {"TRACE", "/v1/jobs", "MethodNotAllowed"},
    {"DELETE", "/v1/jobs", "MethodNotAllowed"},
    {"GET", "/v1/namespaces/a/jobs/b", "getJob"},
    {"GET", "/v1/namespaces/%61/jobs/b", "getJob"},
    {"GET", "/v1/namespaces/a/jobs/%2e%2e", "MalformedRequest"},
    {"GET", "/v1/namespaces/../jobs/b", "MalformedRequest"},
    {"GET", "/v1/namespaces/a/jobs/..%2f..%2fetc", "MalformedRequest"},
    {"GET", "/v1/namespaces/a/jobs/b%00", "MalformedRequest"},
    {"GET", "/v1/namespaces/a/jobs/B", "MalformedRequest"},
    {"GET", "/v1/namespaces/a/jobs/b%2", "MalformedRequest"},
    {"GET", "/v1/namespaces//jobs/b", "NoSuchRoute"},
    {"POST", "/v1/namespaces/a/jobs/b:suspend", "suspendJob"},
    {"POST", "/v1/namespaces/a/jobs/b:checkpoint", "checkpointJob"},
    {"POST", "/v1/namespaces/a/jobs/b:explode", "NoSuchRoute"},
    {"GET", "/v1/namespaces/a/jobs/b:suspend", "MethodNotAllowed"},
    {"GET", "/v1/jobs?limit=200&watch=1&labelSelector=a%3Db", "listAllJobs"},
    {"GET", "/v1/jobs?limit=201", "MalformedRequest"},
    {"GET", "/v1/jobs?limit=0", "MalformedRequest"},
    {"GET", "/v1/jobs?limit=5&limit=6", "MalformedRequest"},
    {"GET", "/v1/jobs?limit", "MalformedRequest"},
    {"GET", "/v1/jobs?limti=5", "MalformedRequest"},
    {"GET", "/v1/jobs?watch=yes", "MalformedRequest"},
    {"GET", "/v1/jobs?continue=%ff", "MalformedRequest"},
    {"GET", "/v1/jobs?continue=%zz", "MalformedRequest"},
    {"GET", "/v1/jobs?include=history", "listAllJobs"},
    {"GET", "/v1/jobs?include=history%2Clive", "listAllJobs"},
    {"GET", "/v1/jobs?include=", "MalformedRequest"},
    {"GET", "/v1/jobs?include=live,live", "MalformedRequest"},
    {"GET", "/v1/jobs?include=live,dead", "MalformedRequest"},
    {"POST", "/v1/namespaces/a/jobs?dryRun=All", "createJob"},
    {"POST", "/v1/namespaces/a/jobs?dryRun=Some", "MalformedRequest"}};
INSTANTIATE_TEST_SUITE_P(Router, Targets, ::testing::ValuesIn(kTargets));

TEST(Router, GivesValuesAndDefaults) {
  const auto found = FindRoute("GET", "/v1/namespaces/a/jobs?continue=x%20y+z&watch=1");
  const Call& call = std::get<Call>(found);
  EXPECT_EQ(call.ns, "a");
  EXPECT_EQ(call.Text("continue"), "x y z");
  EXPECT_EQ(call.Integer("limit"), 50);
  EXPECT_TRUE(call.Flag("watch"));
  EXPECT_TRUE(call.Holds("include", "live"));
  EXPECT_FALSE(call.Holds("include", "history"));
  const auto job = FindRoute("GET", "/v1/namespaces/a/jobs/b");
  EXPECT_TRUE(std::get<Call>(job).Holds("include", "history"));
  const auto logs = FindRoute("GET", "/v1/namespaces/a/jobs/b/logs");
  EXPECT_EQ(std::get<Call>(logs).Integer("tail"), std::nullopt);
}

TEST(Router, NamesWhatWouldBeRight) {
  const auto method = FindRoute("POST", "/v1/version");
  EXPECT_EQ(std::get<Problem>(method).headers.at(0).second, "GET, HEAD");
  const auto word = FindRoute("GET", "/v1/jobs?limti=5");
  EXPECT_THAT(std::get<Problem>(word).detail, HasSubstr("did you mean \"limit\"?"));
}

TEST(Problems, TakeTheStoresRefusalOfAJobApart) {
  const Problem problem = FromStatus(absl::InvalidArgumentError(
      "spec.stop.epochs: must be at least 1\nmetadata.labels[a/b]: is: long"));
  EXPECT_EQ(problem.kind->code, "InvalidJob");
  const nlohmann::json body = ToJson(problem, "id");
  EXPECT_EQ(body["errors"][0]["path"], "spec.stop.epochs");
  EXPECT_EQ(body["errors"][0]["pointer"], "#/spec/stop/epochs");
  EXPECT_EQ(body["errors"][1]["pointer"], "#/metadata/labels/a~1b");
  EXPECT_EQ(body["errors"][1]["detail"], "is: long");
  EXPECT_EQ(body["type"], "tag:starling.dev,2026:problem/invalid-job");
}

TEST(Problems, OfOtherTextsHaveNoFields) {
  EXPECT_EQ(FromStatus(absl::InvalidArgumentError("limit: no")).kind->code, "InvalidRequest");
  EXPECT_EQ(FromStatus(absl::NotFoundError("x")).status(), 404);
  EXPECT_EQ(FromStatus(absl::AbortedError("x")).status(), 409);
  EXPECT_EQ(FromStatus(absl::DataLossError("x")).status(), 500);
  EXPECT_EQ(FromStatus(absl::UnavailableError("x")).headers.at(0).first, "Retry-After");
}

TEST(Problems, HaveACodeForWhatTheServerRefuses) {
  for (const int status : {400, 413, 415, 431, 500, 503, 505}) {
    EXPECT_EQ(FindProblem(CodeOfHttpStatus(status))->status, status);
  }
}

TEST(Pointers, FollowThePathsOfErrors) {
  EXPECT_EQ(PointerOf("spec.dataset.train.csv.shape[2]"), "/spec/dataset/train/csv/shape/2");
  EXPECT_EQ(PointerOf("spec.a[1].b"), "/spec/a/1/b");
  EXPECT_EQ(PointerOf(""), "");
}

TEST(OpenApi, HasEveryRouteAndNamesOnlySchemasThatAreThere) {
  const nlohmann::json paths = OpenApiPaths();
  const nlohmann::json schemas = OpenApiSchemas();
  std::size_t operations = 0;
  for (const auto& [path, methods] : paths.items()) operations += methods.size();
  EXPECT_EQ(operations, Routes().size());
  const std::string text = paths.dump() + schemas.dump();
  const std::string prefix = "#/components/schemas/";
  for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at)) {
    at += prefix.size();
    const std::string name = text.substr(at, text.find('"', at) - at);
    EXPECT_TRUE(schemas.contains(name) || name == "TrainingJob" || name == "TrainingTemplate" ||
                name == "Incident")
        << name;
  }
}

}  // namespace
}  // namespace starling::rest
