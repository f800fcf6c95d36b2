// SPDX-License-Identifier: Apache-2.0
#include "api/rest/openapi.h"

#include <map>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "api/rest/problem.h"
#include "api/rest/router.h"
#include "api/rest/routes.h"
#include "common/status/to_absl.h"
#include "nlohmann/json.hpp"

namespace starling::rest {
namespace {

using Json = nlohmann::json;

constexpr const char* kNamePattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";

Json Reference(std::string_view schema) {
  return {{"$ref", absl::StrCat("#/components/schemas/", ToAbsl(schema))}};
}

Json SchemaOf(const Parameter& parameter) {
  Json schema;
  switch (parameter.kind) {
    case ValueKind::kText:
      schema = {{"type", "string"}, {"maxLength", kLongestText}, {"pattern", "^[^\\u0000]*$"}};
      break;
    case ValueKind::kInteger:
      schema = {
          {"type", "integer"}, {"minimum", parameter.minimum}, {"maximum", parameter.maximum}};
      break;
    case ValueKind::kBoolean:
      schema = {{"type", "boolean"}};
      break;
    case ValueKind::kChoice:
      schema = {{"type", "string"},
                {"enum", std::vector<std::string>(absl::StrSplit(ToAbsl(parameter.choices), ','))}};
      break;
    case ValueKind::kChoices:
      schema = {{"type", "array"}, {"minItems", 1}, {"uniqueItems", true}};
      schema["items"] = {
          {"type", "string"},
          {"enum", std::vector<std::string>(absl::StrSplit(ToAbsl(parameter.choices), ','))}};
      break;
  }
  std::int64_t number = 0;
  const std::string otherwise(parameter.otherwise);
  if (parameter.kind == ValueKind::kChoices) {
    schema["default"] = std::vector<std::string>(absl::StrSplit(otherwise, ','));
  }
  if (parameter.kind == ValueKind::kBoolean) {
    schema["default"] = otherwise == "true";
  } else if (parameter.kind == ValueKind::kInteger && absl::SimpleAtoi(otherwise, &number)) {
    schema["default"] = number;
  }
  return schema;
}

Json ParametersOf(const Route& route) {
  Json parameters = Json::array();
  for (const char* name : {"namespace", "name"}) {
    if (route.path.find(absl::StrCat("{", name, "}")) == std::string_view::npos) continue;
    parameters.push_back(
        {{"name", name},
         {"in", "path"},
         {"required", true},
         {"schema", {{"type", "string"}, {"pattern", kNamePattern}, {"maxLength", 253}}}});
  }
  const auto add = [&parameters](const Parameter& parameter, const char* in) {
    parameters.push_back({{"name", std::string(parameter.name)},
                          {"in", in},
                          {"description", std::string(parameter.meaning)},
                          {"schema", SchemaOf(parameter)}});
    if (parameter.kind == ValueKind::kChoices) parameters.back()["explode"] = false;
  };
  for (const Parameter& parameter : route.query) add(parameter, "query");
  for (const Parameter& parameter : route.headers) add(parameter, "header");
  return parameters;
}

// Problems by their status: several codes may share one.
std::map<int, std::set<std::string>> CodesOf(const Route& route) {
  std::map<int, std::set<std::string>> codes;
  const std::string all = absl::StrCat(ToAbsl(kCommonCodes), ",", ToAbsl(route.codes));
  for (const absl::string_view code : absl::StrSplit(all, ',', absl::SkipEmpty())) {
    const ProblemKind* kind = FindProblem({code.data(), code.size()});
    if (route.right.everybody() && kind->status == 401) continue;
    codes[kind->status].emplace(code);
  }
  return codes;
}

// What a body is that no schema describes.
std::string_view MediaTypeOf(const Route& route) {
  if (!route.response.empty()) return "application/json";
  if (route.operation == Operation::kGetTrace) return "application/gzip";
  return route.operation == Operation::kGetModel ? "application/octet-stream"
                                                 : "text/plain; charset=utf-8";
}

Json ResponsesOf(const Route& route) {
  Json body = {
      {"schema", route.response.empty() ? Json{{"type", "string"}} : Reference(route.response)}};
  Json success = {{"description", std::string(route.summary)},
                  {"content", {{std::string(MediaTypeOf(route)), std::move(body)}}}};
  if (!route.stream.empty()) {
    success["content"]["text/event-stream"] = {{"schema", {{"type", "string"}}}};
  }
  if (route.response == "Usage")
    success["content"]["text/csv"] = {{"schema", {{"type", "string"}}}};
  Json responses = {{absl::StrCat(route.success), success}};
  if (route.operation == Operation::kCreateJob) responses["200"] = success;
  if (route.operation == Operation::kGetModel) responses["206"] = success;
  for (const Parameter& header : route.headers) {
    if (header.name == "If-None-Match") responses["304"] = {{"description", "It still is the one"}};
  }
  for (const auto& [status, codes] : CodesOf(route)) {
    std::string description;
    for (const std::string& code : codes) {
      absl::StrAppend(&description, description.empty() ? "" : "; ", code, ": ",
                      ToAbsl(FindProblem(code)->title));
    }
    responses[absl::StrCat(status)] = {
        {"description", description},
        {"content", {{"application/problem+json", {{"schema", Reference("Problem")}}}}}};
  }
  return responses;
}

Json RequestBodyOf(const Route& route) {
  const Json content = {{"schema", Reference(route.request)}};
  Json types = {{"application/json", content}};
  if (route.operation == Operation::kPatchJob) types["application/merge-patch+json"] = content;
  if (route.operation == Operation::kCreateJob || route.operation == Operation::kValidateJob ||
      route.operation == Operation::kPlanJob) {
    types["application/yaml"] = content;
  }
  return {{"required", true}, {"content", types}};
}

Json Text(const char* description) { return {{"type", "string"}, {"description", description}}; }
Json Whole(const char* description) { return {{"type", "integer"}, {"description", description}}; }
Json Number(const char* description) { return {{"type", "number"}, {"description", description}}; }

Json Object(Json properties, const std::vector<std::string>& required) {
  return {{"type", "object"}, {"properties", std::move(properties)}, {"required", required}};
}

Json ListOf(Json items) { return {{"type", "array"}, {"items", std::move(items)}}; }

// An object in the form of Kubernetes' own API.
Json KubernetesList(const char* what) {
  Json list = Object({{"items", ListOf({{"type", "object"}})}}, {"items"});
  list["description"] = what;
  return list;
}

Json ProblemSchema() {
  const Json error = Object({{"path", Text("The field, as the CLI names it")},
                             {"pointer", Text("The same as the fragment of a JSON pointer")},
                             {"detail", Text("What is wrong with it, and what to do")}},
                            {"path", "pointer", "detail"});
  return Object({{"type", Text("Names the code as a URI")},
                 {"title", Text("What the code means")},
                 {"status", Whole("HTTP's status")},
                 {"code", Text("For programs")},
                 {"detail", Text("What was wrong this time")},
                 {"remedy", Text("What to do")},
                 {"requestId", Text("Stands in the X-Request-Id header too")},
                 {"errors", ListOf(error)}},
                {"type", "title", "status", "code", "detail", "remedy", "requestId"});
}

// Amounts by resource: cpu in cores, memory in bytes, everything else as it is counted.
Json Amounts(const char* description) {
  return {{"type", "object"},
          {"additionalProperties", {{"type", "number"}}},
          {"description", description}};
}

Json PlanSchema() {
  const Json role = Object({{"role", Text("coordinator, worker or parameterServer")},
                            {"replicas", Whole("Wanted")},
                            {"minReplicas", Whole("Without so many it does not train")},
                            {"each", Amounts("What one pod asks for")}},
                           {"role", "replicas", "minReplicas", "each"});
  const Json room = Object({{"source", Text("Such as \"quota team\", \"nodes\", \"this machine\"")},
                            {"amounts", Amounts("What it has left")}},
                           {"source", "amounts"});
  const Json seconds = Object(
      {{"p50", Number("Half of such jobs end within it")}, {"p90", Number("Nine of ten do")}},
      {"p50", "p90"});
  const Json duration = Object({{"seconds", seconds},
                                {"steps", Number("That it trains for, where that is known")},
                                {"basis", Text("What this is known from, or why it is unknown")}},
                               {"basis"});
  Json fits = Text("Whether there is room: as it is, with as few as it trains with, not at all");
  fits["enum"] = {"Yes", "WithFewer", "No", "Unknown"};
  return Object({{"pods", ListOf(role)},
                 {"total", Amounts("Of all pods; pods and jobs are counted too")},
                 {"left", ListOf(room)},
                 {"fits", std::move(fits)},
                 {"why", Text("What it is too large for")},
                 {"unknown", Text("What could not be seen, and why")},
                 {"duration", duration}},
                {"pods", "total", "left", "fits", "duration"});
}

Json UsageSchema() {
  const Json item =
      Object({{"namespace", Text("")},
              {"account", Text("Who made the jobs; empty: nobody knows")},
              {"job", Text("")},
              {"jobs", Whole("How many")},
              {"coreSeconds", Number("Cores that their processes asked for, times the seconds "
                                     "that they were there")},
              {"processSeconds", Number("Of workers and parameter servers")}},
             {"jobs", "coreSeconds", "processSeconds"});
  return Object(
      {{"items", ListOf(item)},
       {"from", Text("As RFC 3339; absent: ever")},
       {"to", Text("As RFC 3339")},
       {"estimatedJobs", Whole("That bring their own container: what they asked for counts")},
       {"unknownJobs", Whole("That an older version recorded, which are not counted")}},
      {"items", "to", "estimatedJobs", "unknownJobs"});
}

Json SummarySchema() {
  return Object({{"namespace", Text("")},
                 {"name", Text("")},
                 {"uid", Text("")},
                 {"resourceVersion", Text("Of the state that this sums up")},
                 {"created", Text("When, as RFC 3339")},
                 {"createdBy", Text("By whom, where that is known")},
                 {"state", Text("Pending, Running, Restarting, Suspended, Succeeded or Failed")},
                 {"labels", {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}}},
                 {"deleting", {{"type", "boolean"}}},
                 {"deleted", Text("When it was seen to be gone, as RFC 3339; of past jobs alone")},
                 {"summary", Text("Such as \"epoch 3/20\"")},
                 {"epoch", Whole("Passes that are done")},
                 {"step", Whole("Steps that are settled")},
                 {"loss", Number("Of the last settled step")},
                 {"samplesPerSecond", Number("Of all workers")},
                 {"workers", Whole("That train now")},
                 {"reason", Text("Of the condition that says the most")},
                 {"use", {{"type", "object"}, {"description", "What it has used, for sums"}}},
                 {"run", {{"type", "object"}, {"description", "What it computed in which time"}}}},
                {"namespace", "name", "uid", "resourceVersion", "created", "state"});
}

}  // namespace

Json OpenApiPaths() {
  Json paths = Json::object();
  for (const Route& route : Routes()) {
    Json operation = {
        {"operationId", std::string(route.id)},
        {"summary", std::string(route.summary)},
        {"parameters", ParametersOf(route)},
        {"responses", ResponsesOf(route)},
        {"security", route.right.everybody() ? Json::array() : Json{{{"token", Json::array()}}}}};
    if (!route.request.empty()) operation["requestBody"] = RequestBodyOf(route);
    const std::string method = absl::AsciiStrToLower(ToAbsl(route.method));
    paths[std::string(route.path)][method] = std::move(operation);
  }
  return paths;
}

Json OpenApiSchemas() {
  const Json roles = {{"type", "string"}, {"enum", {"worker", "parameterServer"}}};
  const Json role = Object({{"replicas", Whole("Wanted")},
                            {"minReplicas", Whole("")},
                            {"maxReplicas", Whole("")},
                            {"active", Whole("Pods that are there")}},
                           {"replicas"});
  Json scale = Object({{"role", roles},
                       {"replicas", {{"type", "integer"}, {"minimum", 0}, {"maximum", 1'000'000}}}},
                      {"replicas"});
  scale["additionalProperties"] = false;
  Json list = Object({{"items", ListOf(Reference("JobSummary"))},
                      {"continue", Text("Of the next page; absent on the last")},
                      {"resourceVersion", Text("Newest state that is in the list")}},
                     {"items"});
  Json point = ListOf({{"type", "number"}});
  point["minItems"] = point["maxItems"] = 3;
  point["description"] = "Step, seconds since the job began, value";
  return {{"Problem", ProblemSchema()},
          {"JobSummary", SummarySchema()},
          {"JobList", std::move(list)},
          {"JobPatch",
           {{"type", "object"}, {"description", "What is to change; null removes (RFC 7386)"}}},
          {"ScaleRequest", std::move(scale)},
          {"Scale",
           Object({{"roles", {{"type", "object"}, {"additionalProperties", role}}}}, {"roles"})},
          {"PodList", KubernetesList("Pods as Kubernetes writes them")},
          {"EventList", KubernetesList("events.k8s.io/v1 Events")},
          {"IncidentList", Object({{"items", ListOf(Reference("Incident"))}}, {"items"})},
          {"Metrics",
           Object({{"metrics",
                    {{"type", "object"}, {"additionalProperties", ListOf(std::move(point))}}}},
                  {"metrics"})},
          {"Plan", PlanSchema()},
          {"Usage", UsageSchema()},
          {"TemplateList", Object({{"items", ListOf(Reference("TrainingTemplate"))}}, {"items"})},
          {"Caller", Object({{"name", Text("")}}, {"name"})},
          {"Version",
           Object({{"version", Text("")}, {"apiVersion", Text("")}}, {"version", "apiVersion"})},
          {"OpenApi", {{"type", "object"}}}};
}

}  // namespace starling::rest
