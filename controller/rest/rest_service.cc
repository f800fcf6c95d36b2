// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/rest_service.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "api/schema/documents.h"
#include "api/telemetry/metric_table.h"
#include "common/bytes/bytes.h"
#include "common/http/conditional.h"
#include "common/json/json.h"
#include "common/status/check.h"
#include "controller/kube/objects.h"

namespace starling::service {
namespace {

using kube::Json;

constexpr char kProblemType[] = "application/problem+json";

http::Response ProblemResponse(const rest::Problem& problem, const std::string& request_id) {
  http::Response response{.status = problem.status(),
                          .body = json::Dump(rest::ToJson(problem, request_id)) + "\n",
                          .content_type = kProblemType,
                          .headers = {}};
  response.headers.assign(problem.headers.begin(), problem.headers.end());
  response.headers.emplace_back("X-Request-Id", request_id);
  return response;
}

// What an API server says to a token that has expired since it was reviewed.
bool IsUnknownToken(const rest::Problem& problem) {
  return problem.status() == 403 && problem.detail == "Unauthorized";
}

}  // namespace

http::Response JsonResponse(int status, const Json& body) {
  return {.status = status,
          .body = json::Dump(body) + "\n",
          .content_type = "application/json",
          .headers = {}};
}

http::Response JobResponse(int status, Json job) {
  job["metadata"].erase("managedFields");
  http::Response response = JsonResponse(status, job);
  response.headers.emplace_back("ETag", http::Quoted(kube::ResourceVersionOf(job)));
  return response;
}

RestService::RestService(kube::KubeClient& store, runtime::Informer& jobs, const JobFiles& files,
                         history::History& history, const clock::Clock& clock,
                         metrics::Registry& registry, ServiceOptions options)
    : store_(store),
      jobs_(jobs),
      files_(files),
      history_(history),
      clock_(clock),
      registry_(registry),
      options_(std::move(options)),
      openapi_(schema::OpenApiJson()),
      limits_(clock, options_.limits),
      hub_(clock, telemetry::AddCounter(registry, "starling_http_coalesced_events_total")) {
  jobs_.AddHandler([this](const auto& before, const auto& after) { hub_.Take(before, after); });
}

void RestService::Begin(int port) {
  std::int64_t seen = 0;
  hub_.Begin(absl::SimpleAtoi(jobs_.seen(), &seen) ? seen : 0);
  port_ = port;
}

RestService::Handler RestService::HandlerOf(rest::Operation operation) {
  using Operation = rest::Operation;
  static constexpr std::pair<Operation, Handler> kHandlers[] = {
      {Operation::kCreateJob, &RestService::CreateJob},
      {Operation::kListJobs, &RestService::ListJobs},
      {Operation::kListAllJobs, &RestService::ListJobs},
      {Operation::kGetJob, &RestService::GetJob},
      {Operation::kReplaceJob, &RestService::ReplaceJob},
      {Operation::kPatchJob, &RestService::PatchJob},
      {Operation::kDeleteJob, &RestService::DeleteJob},
      {Operation::kGetScale, &RestService::GetScale},
      {Operation::kSetScale, &RestService::SetScale},
      {Operation::kSuspendJob, &RestService::SuspendJob},
      {Operation::kResumeJob, &RestService::ResumeJob},
      {Operation::kCheckpointJob, &RestService::CheckpointJob},
      {Operation::kTraceJob, &RestService::TraceJob},
      {Operation::kListPods, &RestService::ListPods},
      {Operation::kListEvents, &RestService::ListEvents},
      {Operation::kListIncidents, &RestService::ListIncidents},
      {Operation::kGetMetrics, &RestService::GetMetrics},
      {Operation::kGetLogs, &RestService::GetLogs},
      {Operation::kGetModel, &RestService::GetModel},
      {Operation::kGetTrace, &RestService::GetTrace},
      {Operation::kValidateJob, &RestService::ValidateJob},
      {Operation::kPlanJob, &RestService::PlanJob},
      {Operation::kGetUsage, &RestService::GetUsage},
      {Operation::kGetAllUsage, &RestService::GetUsage},
      {Operation::kListTemplates, &RestService::ListTemplates},
      {Operation::kWhoAmI, &RestService::WhoAmI},
      {Operation::kGetVersion, &RestService::GetVersion},
      {Operation::kGetOpenApi, &RestService::GetOpenApi}};
  for (const auto& [known, handler] : kHandlers) {
    if (known == operation) return handler;
  }
  STARLING_CHECK(false, "every operation has a handler");
}

std::optional<rest::Problem> RestService::CheckLimit(const std::string& caller,
                                                     const rest::Route& route) {
  if (caller.empty()) return std::nullopt;
  const bool writes = route.writes();
  const absl::Duration wait = limits_.Take(caller, writes);
  if (wait <= absl::ZeroDuration()) return std::nullopt;
  const double rate = writes ? options_.limits.writes_per_second : options_.limits.reads_per_second;
  rest::Problem problem = rest::MakeProblem(
      "TooManyRequests", absl::StrCat("\"", caller, "\" asks for more than ", rate,
                                      writes ? " writes" : " reads", " a second"));
  problem.headers.emplace_back(
      "Retry-After", absl::StrCat(static_cast<int>(std::ceil(absl::ToDoubleSeconds(wait)))));
  return problem;
}

RestService::Outcome RestService::Route(const http::Request& request, std::string& route,
                                        Caller& caller) {
  const AccessRules access{options_.token, port_};
  if (options_.door == nullptr) {
    const auto host = CheckHost(request, access);
    if (const auto* problem = std::get_if<rest::Problem>(&host)) return *problem;
  }
  const auto found = rest::FindRoute(request.method, request.target);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const rest::Call& call = std::get<rest::Call>(found);
  route = std::string(call.route->id);
  const CheckCaller check = [this, &call](const std::string& name) {
    return CheckLimit(name, *call.route);
  };
  auto admitted = options_.door != nullptr ? options_.door->Admit(request, call, check)
                                           : Admit(request, *call.route, access);
  if (auto* problem = std::get_if<rest::Problem>(&admitted)) return std::move(*problem);
  caller = std::get<Caller>(admitted);
  if (options_.door == nullptr) {
    if (auto problem = check(caller.name)) return *std::move(problem);
  }
  const Asked asked{request, call, caller};
  Outcome outcome = (this->*HandlerOf(call.route->operation))(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&outcome); problem != nullptr) {
    if (caller.client != nullptr && IsUnknownToken(*problem)) {
      return Unauthorized("the API server does not take this token any more");
    }
  }
  return outcome;
}

http::Response RestService::Answer(const http::Request& request) {
  const absl::Time began = clock_.Now();
  const std::string request_id = bytes::RandomUuid();
  std::string route = "none";
  Caller caller;
  Outcome outcome = Route(request, route, caller);
  const auto* problem = std::get_if<rest::Problem>(&outcome);
  http::Response response = problem != nullptr ? ProblemResponse(*problem, request_id)
                                               : std::get<http::Response>(std::move(outcome));
  if (problem == nullptr) response.headers.emplace_back("X-Request-Id", request_id);
  response.known_caller = !caller.name.empty();
  const std::string method = route == "none" ? "other" : request.method;
  telemetry::AddCounter(
      registry_, "starling_http_requests_total",
      {{"route", route}, {"method", method}, {"code", absl::StrCat(response.status)}})
      .Increment();
  telemetry::AddHistogram(registry_, "starling_http_request_duration_seconds", {{"route", route}})
      .Observe(absl::ToDoubleSeconds(clock_.Now() - began));
  return response;
}

http::Response RestService::Refuse(int status, std::string_view why) const {
  return ProblemResponse(rest::MakeProblem(rest::CodeOfHttpStatus(status), std::string(why)),
                         bytes::RandomUuid());
}

kube::KubeClient& RestService::StoreOf(const Asked& asked) {
  if (asked.caller.client != nullptr) return *asked.caller.client;
  return store_;
}

// As the service itself: whether the caller may read or write it has been asked before.
absl::StatusOr<Json> RestService::ReadJob(const Asked& asked) {
  const kube::ObjectKey key{asked.call.ns, asked.call.name};
  if (options_.reads_copy && !asked.call.route->writes()) {
    if (const auto job = jobs_.Get({key.ns, key.name}); job != nullptr) return *job;
  }
  return store_.Get(kube::kTrainingJob, key);
}

std::variant<Json, rest::Problem> RestService::FindJob(const Asked& asked) {
  absl::StatusOr<Json> job = ReadJob(asked);
  if (!job.ok()) return rest::FromStatus(job.status());
  const std::string uid = asked.call.Text("uid");
  if (!uid.empty() && uid != kube::UidOf(*job)) {
    return rest::MakeProblem(
        "PreconditionFailed",
        "the job of this name is another one: its UID is " + kube::UidOf(*job));
  }
  const std::string_view match = asked.request.Header("If-Match");
  if (!match.empty() && !http::HoldsTag(match, kube::ResourceVersionOf(*job))) {
    return rest::MakeProblem("PreconditionFailed",
                             "the job's ETag is " + http::Quoted(kube::ResourceVersionOf(*job)));
  }
  return *std::move(job);
}

}  // namespace starling::service
