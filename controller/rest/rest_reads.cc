// SPDX-License-Identifier: Apache-2.0
// What there is: jobs, their pods, events, incidents and metrics, and the service itself.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/http/conditional.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"
#include "controller/rest/event_text.h"
#include "controller/rest/job_list.h"
#include "controller/rest/job_stream.h"
#include "controller/rest/rest_service.h"

namespace starling::service {
namespace {

using kube::Json;

std::optional<std::int64_t> LastEventId(const http::Request& request) {
  const std::string_view text = request.Header("Last-Event-ID");
  std::int64_t id = 0;
  if (!absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &id)) return std::nullopt;
  return id;
}

std::string TimeOf(const Json& event) {
  const std::string time = kube::StringAt(event, "/eventTime");
  return time.empty() ? kube::StringAt(event, "/metadata/creationTimestamp") : time;
}

// Of the job itself, or of one of its pods.
bool IsAbout(const Json& event, const Json& job) {
  const Json& regarding = kube::At(event, "/regarding");
  if (kube::StringAt(regarding, "/uid") == kube::UidOf(job)) return true;
  return kube::StringAt(regarding, "/kind") == "Pod" &&
         kube::StringAt(regarding, "/name").starts_with(kube::NameOf(job) + "-");
}

}  // namespace

RestService::Outcome RestService::Watch(const Asked& asked, JobFilter filter, bool whole) {
  CallLimits::Ticket ticket = limits_.OpenStream(asked.caller.name);
  if (ticket == nullptr) {
    rest::Problem problem = rest::MakeProblem(
        "TooManyRequests", absl::StrCat("more than ", options_.limits.streams, " streams are open"),
        "close one of them first");
    problem.headers.emplace_back("Retry-After", "5");
    return problem;
  }
  JobStreamOptions options;
  options.filter = std::move(filter);
  options.whole = whole;
  options.since = LastEventId(asked.request);
  options.timeout = absl::Seconds(asked.call.Integer("timeoutSeconds").value_or(3600));
  options.permit = asked.caller.permit;
  return http::Response{
      .body = "",
      .content_type = kEventStream,
      .headers = {{"X-Accel-Buffering", "no"}},
      .stream = std::make_shared<JobStream>(hub_, clock_, std::move(ticket), std::move(options))};
}

RestService::Outcome RestService::ListJobs(const Asked& asked) {
  const kube::Selection selection{asked.call.Text("labelSelector"),
                                  asked.call.Text("fieldSelector")};
  absl::StatusOr<kube::Selector> selector = kube::Selector::Parse(kube::kTrainingJob, selection);
  if (!selector.ok()) {
    return rest::MakeProblem("MalformedRequest", std::string(selector.status().message()));
  }
  JobFilter filter{asked.call.ns, "", *std::move(selector)};
  if (asked.call.Flag("watch")) return Watch(asked, std::move(filter), /*whole=*/false);
  const std::int64_t newest = hub_.newest();
  auto page = ListPage(hub_.Live(filter),
                       static_cast<std::size_t>(asked.call.Integer("limit").value_or(50)),
                       asked.call.Text("continue"), options_.signing_key);
  if (auto* problem = std::get_if<rest::Problem>(&page)) return std::move(*problem);
  Json& list = std::get<Json>(page);
  list["resourceVersion"] = absl::StrCat(newest);
  return JsonResponse(200, list);
}

RestService::Outcome RestService::GetJob(const Asked& asked) {
  auto found = FindJob(asked);
  if (auto* problem = std::get_if<rest::Problem>(&found)) return std::move(*problem);
  Json& job = std::get<Json>(found);
  if (asked.call.Flag("watch")) {
    return Watch(asked, {asked.call.ns, asked.call.name, {}}, /*whole=*/true);
  }
  http::Response response = JobResponse(200, std::move(job));
  const std::string_view tags = asked.request.Header("If-None-Match");
  const std::string tag(response.Header("ETag"));
  if (!tags.empty() && http::HoldsTag(tags, tag.substr(1, tag.size() - 2))) {
    response.status = 304;
    response.body.clear();
  }
  return response;
}

RestService::Outcome RestService::ListPods(const Asked& asked) {
  const auto found = FindJob(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  kube::ListOptions options;
  options.selection.labels = resources::JobSelector(asked.call.name);
  absl::StatusOr<kube::ObjectList> pods = StoreOf(asked).List(kube::kPod, asked.call.ns, options);
  if (!pods.ok()) return rest::FromStatus(pods.status());
  Json items = Json::array();
  for (Json& pod : pods->items) {
    if (kube::ControllerUidOf(pod) != kube::UidOf(std::get<Json>(found))) continue;
    pod["metadata"].erase("managedFields");
    items.push_back(std::move(pod));
  }
  return JsonResponse(200, {{"items", std::move(items)}});
}

RestService::Outcome RestService::ListEvents(const Asked& asked) {
  const auto found = FindJob(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  absl::StatusOr<kube::ObjectList> events = StoreOf(asked).List(kube::kEvent, asked.call.ns, {});
  if (!events.ok()) return rest::FromStatus(events.status());
  std::vector<Json> items;
  for (Json& event : events->items) {
    if (!IsAbout(event, std::get<Json>(found))) continue;
    event["metadata"].erase("managedFields");
    items.push_back(std::move(event));
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Json& a, const Json& b) { return TimeOf(a) < TimeOf(b); });
  return JsonResponse(200, {{"items", std::move(items)}});
}

RestService::Outcome RestService::ListIncidents(const Asked& asked) {
  const auto found = FindJob(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  Json items = kube::At(std::get<Json>(found), "/status/incidents");
  if (items.is_null()) items = Json::array();
  return JsonResponse(200, {{"items", std::move(items)}});
}

RestService::Outcome RestService::GetMetrics(const Asked& asked) {
  const auto found = FindJob(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const auto from = asked.call.Integer("from").value_or(0);
  const auto most = static_cast<std::size_t>(asked.call.Integer("points").value_or(2000));
  Json metrics = Json::object();
  for (const auto& [name, curve] :
       hub_.Points(kube::UidOf(std::get<Json>(found)), asked.call.Text("name"))) {
    metrics[name] = history::ToJson(history::Select(curve, from, most));
  }
  return JsonResponse(200, {{"metrics", std::move(metrics)}});
}

RestService::Outcome RestService::WhoAmI(const Asked& asked) {
  return JsonResponse(200, {{"name", asked.caller.name}});
}

RestService::Outcome RestService::GetVersion(const Asked&) {
  return JsonResponse(200,
                      {{"version", options_.version}, {"apiVersion", "starling.dev/v1alpha1"}});
}

RestService::Outcome RestService::GetOpenApi(const Asked&) {
  return http::Response{.body = openapi_, .content_type = "application/json", .headers = {}};
}

}  // namespace starling::service
