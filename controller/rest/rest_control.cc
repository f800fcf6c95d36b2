// SPDX-License-Identifier: Apache-2.0
// Jobs are scaled, suspended, resumed and asked for checkpoints.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/spec/checkpoint_request.h"
#include "api/spec/trace_request.h"
#include "common/json/json.h"
#include "controller/kube/objects.h"
#include "controller/rest/body.h"
#include "controller/rest/rest_service.h"
#include "controller/rest/summary.h"

namespace starling::service {
namespace {

using kube::Json;

constexpr const char* kRoles[] = {"worker", "parameterServer"};

// What is wanted of each role that the job has, and what is there.
Json ScaleOf(const Json& job) {
  Json roles = Json::object();
  for (const std::string role : kRoles) {
    const Json& spec = kube::At(job, "/spec/replicaSpecs/" + role);
    const Json& status = kube::At(job, "/status/replicaStatuses/" + role);
    if (spec.is_null() && status.is_null() && role != "worker") continue;
    Json& scale = roles[role] = {{"replicas", kube::IntAt(spec, "/replicas")},
                                 {"active", kube::IntAt(status, "/active")}};
    for (const char* bound : {"minReplicas", "maxReplicas"}) {
      const Json& value = kube::At(spec, std::string("/") + bound);
      if (!value.is_null()) scale[bound] = value;
    }
  }
  return {{"roles", roles}};
}

// {"role": "worker", "replicas": 4}; the role is worker where it is not given.
std::variant<std::pair<std::string, std::int64_t>, rest::Problem> ReadScale(const Json& body) {
  spec::FieldErrors errors;
  for (const auto& [name, value] : body.items()) {
    if (name == "role" || name == "replicas") continue;
    errors.push_back({name, "unknown field" + spec::DidYouMean(name, {"role", "replicas"})});
  }
  std::string role = "worker";
  if (body.contains("role")) {
    role =
        body["role"].is_string() ? body["role"].get<std::string>() : json::Describe(body["role"]);
    if (role != kRoles[0] && role != kRoles[1]) {
      errors.push_back({"role", absl::StrCat("must be worker or parameterServer",
                                             spec::DidYouMean(role, {kRoles[0], kRoles[1]}))});
    }
  }
  constexpr std::int64_t kMost = 1'000'000;
  const Json& replicas = kube::At(body, "/replicas");
  const std::int64_t wanted =
      replicas.is_number_integer() ? kube::IntAt(body, "/replicas", -1) : -1;
  if (wanted < 0 || wanted > kMost) {
    errors.push_back({"replicas", "must be a whole number from 0 to 1000000"});
  }
  if (!errors.empty()) return rest::InvalidJob(std::move(errors));
  return std::pair(role, wanted);
}

rest::Problem NothingTo(std::string_view verb, const Json& job) {
  return rest::MakeProblem("NotPossibleNow",
                           absl::StrCat("job \"", kube::NameOf(job),
                                        "\" is finished; there is nothing to ", std::string(verb)));
}

}  // namespace

RestService::Outcome RestService::GetScale(const Asked& asked) {
  const auto found = FindJob(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  return JsonResponse(200, ScaleOf(std::get<Json>(found)));
}

RestService::Outcome RestService::SetScale(const Asked& asked) {
  const auto body = ReadBody(asked.request, BodyForms::kJson);
  if (const auto* problem = std::get_if<rest::Problem>(&body)) return *problem;
  const auto read = ReadScale(std::get<Json>(body));
  if (const auto* problem = std::get_if<rest::Problem>(&read)) return *problem;
  const auto& [role, replicas] = std::get<0>(read);
  const auto found = FindJob(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const Json& job = std::get<Json>(found);
  if (IsFinished(job)) return NothingTo("scale", job);
  if (role == "parameterServer" && kube::At(job, "/spec/exchange/parameterServer").is_null()) {
    return rest::MakeProblem(
        "InvalidRequest", absl::StrCat("job \"", kube::NameOf(job), "\" has no parameter servers"),
        "scale worker, or give spec.exchange.parameterServer");
  }
  if (role == kRoles[0] && asked.caller.client != nullptr) return SetWorkers(asked, job, replicas);
  Outcome outcome =
      Patched(asked, job, {{"spec", {{"replicaSpecs", {{role, {{"replicas", replicas}}}}}}}});
  if (const auto* response = std::get_if<http::Response>(&outcome)) {
    return JsonResponse(200, ScaleOf(Json::parse(response->body)));
  }
  return outcome;
}

// By the scale subresource, which speaks of workers: so whoever may do no more than scale may
// scale.
RestService::Outcome RestService::SetWorkers(const Asked& asked, const Json& job,
                                             std::int64_t replicas) {
  Json scale = {{"apiVersion", "autoscaling/v1"},
                {"kind", "Scale"},
                {"metadata", {{"name", kube::NameOf(job)}, {"namespace", kube::NamespaceOf(job)}}},
                {"spec", {{"replicas", replicas}}}};
  if (!asked.request.Header("If-Match").empty()) {
    scale["metadata"]["resourceVersion"] = kube::ResourceVersionOf(job);
  }
  const absl::StatusOr<Json> scaled = StoreOf(asked).UpdateScale(kube::kTrainingJob, scale);
  if (!scaled.ok()) return Written(asked, scaled.status(), 200);
  AwaitCopy(*scaled);
  const absl::StatusOr<Json> now = ReadJob(asked);
  if (!now.ok()) return rest::FromStatus(now.status());
  return JsonResponse(200, ScaleOf(*now));
}

RestService::Outcome RestService::SetSuspend(const Asked& asked, bool suspend) {
  const auto found = FindJob(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const Json& job = std::get<Json>(found);
  if (IsFinished(job)) {
    return NothingTo(suspend ? "suspend" : "resume", job);
  }
  Outcome outcome = Patched(asked, job, {{"spec", {{"runPolicy", {{"suspend", suspend}}}}}});
  if (auto* response = std::get_if<http::Response>(&outcome)) response->status = 202;
  return outcome;
}

RestService::Outcome RestService::SuspendJob(const Asked& asked) { return SetSuspend(asked, true); }
RestService::Outcome RestService::ResumeJob(const Asked& asked) { return SetSuspend(asked, false); }

// Not waited for: it may take longer than any answer may.
RestService::Outcome RestService::CheckpointJob(const Asked& asked) {
  const auto found = FindJob(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const Json& job = std::get<Json>(found);
  if (const absl::Status possible = spec::CheckCheckpointRequest(job); !possible.ok()) {
    return rest::MakeProblem("NotPossibleNow", std::string(possible.message()));
  }
  Outcome outcome = Patched(asked, job, spec::CheckpointRequestPatch(job, clock_.WallNow()));
  if (auto* response = std::get_if<http::Response>(&outcome)) response->status = 202;
  return outcome;
}

// The same: it takes as long as the steps do.
RestService::Outcome RestService::TraceJob(const Asked& asked) {
  const auto found = FindJob(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const Json& job = std::get<Json>(found);
  if (const absl::Status possible = spec::CheckTraceRequest(job); !possible.ok()) {
    return rest::MakeProblem("NotPossibleNow", std::string(possible.message()));
  }
  spec::TraceWish wish;
  wish.steps = asked.call.Integer("steps").value_or(wish.steps);
  if (const auto seconds = asked.call.Integer("seconds")) wish.time = absl::Seconds(*seconds);
  Outcome outcome = Patched(asked, job, spec::TraceRequestPatch(job, wish, clock_.WallNow()));
  if (auto* response = std::get_if<http::Response>(&outcome)) response->status = 202;
  return outcome;
}

}  // namespace starling::service
