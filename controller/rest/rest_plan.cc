// SPDX-License-Identifier: Apache-2.0
// What a job would take before it is submitted, and what jobs have taken.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/spec/job_file.h"
#include "api/spec/resolve.h"
#include "controller/kube/objects.h"
#include "controller/rest/plan.h"
#include "controller/rest/rest_service.h"
#include "controller/rest/room.h"
#include "controller/rest/summary.h"
#include "controller/rest/usage.h"

namespace starling::service {
namespace {

using kube::Json;

constexpr std::size_t kPageOfPast = 500;
constexpr std::size_t kMostRuns = 20;
constexpr std::size_t kMostPastLookedAt = 5000;  // newest first, for runs that were like a job

// A bound of time as the query has it; what is no time is a problem.
std::variant<absl::Time, rest::Problem> TimeOf(const rest::Call& call, const char* name,
                                               absl::Time otherwise) {
  const std::string text = call.Text(name);
  if (text.empty()) return otherwise;
  if (const auto time = kube::ParseTimestamp(text)) return *time;
  return rest::MakeProblem("MalformedRequest",
                           absl::StrCat(name, " is \"", text.substr(0, 64), "\", which is no time"),
                           "write it as RFC 3339 has it, such as 2026-01-31T00:00:00Z");
}

}  // namespace

// Every past job of a namespace (empty: of all) until `take` has had enough.
absl::Status RestService::EachPast(const std::string& ns,
                                   const std::function<bool(const history::ListedJob&)>& take) {
  history::ListQuery query;
  query.ns = ns;
  query.limit = kPageOfPast;
  while (true) {
    const absl::StatusOr<std::vector<history::ListedJob>> page = history_.List(query);
    if (!page.ok()) return page.status();
    for (const history::ListedJob& job : *page) {
      if (!take(job)) return absl::OkStatus();
    }
    if (page->size() < kPageOfPast) return absl::OkStatus();
    query.after = {page->back().created, page->back().uid};
  }
}

// What was like the job, newest first. A history that cannot be reached has nothing to tell.
std::vector<PastRun> RestService::RunsLike(const Json& job) {
  const std::string ns = kube::NamespaceOf(job), name = kube::NameOf(job);
  const std::string likeness = LikenessOf(kube::At(job, "/spec"));
  std::vector<PastRun> runs;
  const auto add = [&](const Json& summary) {
    if (auto run = ReadRun(summary, name, likeness)) runs.push_back(*std::move(run));
    return runs.size() < kMostRuns;
  };
  for (const auto& live : jobs_.List()) {
    if (kube::NamespaceOf(*live) == ns && !add(SummaryOf(*live))) return runs;
  }
  std::size_t seen = 0;
  EachPast(ns, [&](const history::ListedJob& past) {
    return ++seen <= kMostPastLookedAt && add(past.summary);
  }).IgnoreError();
  return runs;
}

RestService::Outcome RestService::PlanJob(const Asked& asked) {
  auto resolving = ReadResolved(asked);
  if (auto* problem = std::get_if<rest::Problem>(&resolving)) return std::move(*problem);
  const auto& [job, resolved] = std::get<ResolvedJob>(resolving);
  const absl::StatusOr<std::vector<PlannedPods>> pods = PodsOf(resolved);
  if (!pods.ok()) return rest::FromStatus(pods.status());
  const Rooms rooms = asked.caller.client != nullptr ? RoomsOfCluster(StoreOf(asked), asked.call.ns)
                                                     : RoomsOfMachine(store_);
  return JsonResponse(200, PlanOf(*pods, rooms, DurationOf(resolved, RunsLike(job))));
}

RestService::Outcome RestService::GetUsage(const Asked& asked) {
  const auto from = TimeOf(asked.call, "from", absl::InfinitePast());
  if (const auto* problem = std::get_if<rest::Problem>(&from)) return *problem;
  const auto to = TimeOf(asked.call, "to", absl::InfiniteFuture());
  if (const auto* problem = std::get_if<rest::Problem>(&to)) return *problem;
  const UsageQuery query{.from = std::get<absl::Time>(from),
                         .to = std::get<absl::Time>(to),
                         .by_namespace = asked.call.Holds("by", "namespace"),
                         .by_account = asked.call.Holds("by", "account"),
                         .by_job = asked.call.Holds("by", "job")};
  if (query.from >= query.to) {
    return rest::MakeProblem("MalformedRequest", "from is not before to",
                             "leave one of them out, or give a time that is later as to");
  }
  Usage usage(query, clock_.WallNow());
  for (const auto& live : jobs_.List()) {
    if (!asked.call.ns.empty() && kube::NamespaceOf(*live) != asked.call.ns) continue;
    usage.Add(SummaryOf(*live), std::nullopt);
  }
  const absl::Status read = EachPast(asked.call.ns, [&](const history::ListedJob& past) {
    usage.Add(past.summary, past.gone);
    return true;
  });
  if (!read.ok()) return HistoryProblem(read);
  const bool csv = asked.request.Header("Accept").find("text/csv") != std::string_view::npos;
  if (!csv) return JsonResponse(200, usage.ToJson());
  return http::Response{
      .body = usage.ToCsv(), .content_type = "text/csv; charset=utf-8", .headers = {}};
}

}  // namespace starling::service
