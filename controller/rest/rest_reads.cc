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

}  // namespace

RestService::Outcome RestService::Watch(const Asked& asked, JobFilter filter, bool whole) {
  CallLimits::Ticket ticket = limits_.OpenStream(asked.caller.name);
  if (ticket == nullptr) {
    rest::Problem problem = rest::MakeProblem(
        "TooManyRequests",
        absl::StrCat("\"", asked.caller.name, "\" has ", options_.limits.streams, " streams open"),
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
  const auto read = ReadPlace(asked.call.Text("continue"), options_.signing_key);
  if (const auto* problem = std::get_if<rest::Problem>(&read)) return *problem;
  const auto& after = std::get<std::optional<Place>>(read);
  // First what is there: a job that goes meanwhile is in both rather than in neither.
  const std::int64_t newest = hub_.newest();
  std::vector<JobStatePtr> live;
  if (asked.call.Holds("include", "live")) live = hub_.Live(filter);
  std::vector<history::ListedJob> past;
  if (asked.call.Holds("include", "history")) {
    auto listed = ListPast(asked, filter, after);
    if (auto* problem = std::get_if<rest::Problem>(&listed)) return std::move(*problem);
    past = std::get<std::vector<history::ListedJob>>(std::move(listed));
  }
  const auto limit = static_cast<std::size_t>(asked.call.Integer("limit").value_or(50));
  Json list = ListPage(live, past, limit, after, options_.signing_key);
  list["resourceVersion"] = absl::StrCat(newest);
  return JsonResponse(200, list);
}

RestService::Outcome RestService::GetJob(const Asked& asked) {
  if (asked.call.Flag("watch")) {
    auto found = FindJob(asked);  // what is past does not change
    if (auto* problem = std::get_if<rest::Problem>(&found)) return std::move(*problem);
    return Watch(asked, {asked.call.ns, asked.call.name, {}}, /*whole=*/true);
  }
  auto found = FindLiveOrPast(asked);
  if (auto* problem = std::get_if<rest::Problem>(&found)) return std::move(*problem);
  http::Response response = JobResponse(200, std::get<Told>(std::move(found)).object);
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
  const auto found = FindLiveOrPast(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const Told& told = std::get<Told>(found);
  if (told.past) return JsonResponse(200, {{"items", told.past->events}});
  absl::StatusOr<kube::ObjectList> events = StoreOf(asked).List(kube::kEvent, asked.call.ns, {});
  if (!events.ok()) return rest::FromStatus(events.status());
  std::vector<Json> items;
  for (Json& event : events->items) {
    if (!history::IsAbout(event, told.object)) continue;
    event["metadata"].erase("managedFields");
    items.push_back(std::move(event));
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Json& a, const Json& b) { return TimeOf(a) < TimeOf(b); });
  return JsonResponse(200, {{"items", std::move(items)}});
}

RestService::Outcome RestService::ListIncidents(const Asked& asked) {
  const auto found = FindLiveOrPast(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const Told& told = std::get<Told>(found);
  if (told.past) return JsonResponse(200, {{"items", told.past->incidents}});
  // A status holds the newest; the history, where it can be had, those before them too.
  const absl::StatusOr<history::PastJob> kept = FindKept(asked, kube::UidOf(told.object));
  return JsonResponse(
      200, {{"items", history::MergeIncidents(kept.ok() ? kept->incidents : std::vector<Json>(),
                                              kube::At(told.object, "/status/incidents"))}});
}

RestService::Outcome RestService::GetMetrics(const Asked& asked) {
  const auto found = FindLiveOrPast(asked);
  if (const auto* problem = std::get_if<rest::Problem>(&found)) return *problem;
  const auto read = CurvesOf(std::get<Told>(found), asked.call.Text("name"));
  if (const auto* problem = std::get_if<rest::Problem>(&read)) return *problem;
  const auto from = asked.call.Integer("from").value_or(0);
  const auto most = static_cast<std::size_t>(asked.call.Integer("points").value_or(2000));
  Json metrics = Json::object();
  for (const auto& [metric, curve] : std::get<0>(read)) {
    metrics[metric] = history::ToJson(history::Select(curve, from, most));
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
