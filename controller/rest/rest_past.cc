// SPDX-License-Identifier: Apache-2.0
// Jobs whose objects are no more, as the history has them.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/rest/event_text.h"
#include "controller/rest/rest_service.h"

namespace starling::service {
namespace {

using kube::Json;

// The last `tail` lines; nothing: all.
std::vector<std::string> LinesOf(const std::string& text, std::optional<std::int64_t> tail) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (tail && lines.size() > static_cast<std::size_t>(*tail)) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(*tail));
  }
  return lines;
}

}  // namespace

rest::Problem HistoryProblem(const absl::Status& status) {
  rest::Problem problem = rest::MakeProblem(
      "Unavailable", std::string(status.message()),
      "see the log of starling-controller; jobs that are there can be had with include=live");
  problem.headers.emplace_back("Retry-After", "5");
  return problem;
}

std::variant<std::map<std::string, history::Points>, rest::Problem> RestService::CurvesOf(
    const Told& told, const std::string& metric) {
  const std::string uid = kube::UidOf(told.object);
  auto curves = history_.Curves(uid, metric);
  // Of a job that is there this process knows the newest itself.
  if (!curves.ok() && told.past) return HistoryProblem(curves.status());
  std::map<std::string, history::Points> points;
  if (curves.ok()) points = *std::move(curves);
  for (const auto& [name, newer] : hub_.Points(uid, metric)) {
    points[name] = history::Joined(std::move(points[name]), newer);
  }
  return points;
}

std::variant<RestService::Told, rest::Problem> RestService::FindLiveOrPast(const Asked& asked) {
  // Routes of a job's parts leave no choice: both.
  const bool both = asked.call.Text("include").empty();
  const std::string uid = asked.call.Text("uid");
  rest::Problem missing = rest::MakeProblem(
      "NotFound",
      absl::StrCat("job \"", asked.call.name, "\" not found in namespace ", asked.call.ns));
  if (both || asked.call.Holds("include", "live")) {
    auto found = FindJob(asked);
    if (auto* job = std::get_if<Json>(&found)) return Told{std::move(*job), std::nullopt};
    missing = std::get<rest::Problem>(std::move(found));
    const bool another = missing.status() == 412 && !uid.empty();
    if (missing.status() != 404 && !another) return missing;
  }
  if (!both && !asked.call.Holds("include", "history")) return missing;
  absl::StatusOr<history::PastJob> past = FindKept(asked, uid);
  if (absl::IsNotFound(past.status())) return missing;
  if (!past.ok()) return HistoryProblem(past.status());
  Json object = history::ObjectToShow(*past);
  return Told{std::move(object), *std::move(past)};
}

// Of the namespace that there is now, and of no earlier one of its name.
absl::StatusOr<history::PastJob> RestService::FindKept(const Asked& asked, const std::string& uid) {
  std::string ns_uid;
  if (options_.namespace_uid != nullptr) {
    ASSIGN_OR_RETURN(ns_uid, options_.namespace_uid(asked.call.ns));
  }
  return history_.Find({asked.call.ns, ns_uid, asked.call.name, uid});
}

std::variant<std::vector<history::ListedJob>, rest::Problem> RestService::ListPast(
    const Asked& asked, const JobFilter& filter, const std::optional<Place>& after) {
  history::ListQuery query;
  query.ns = filter.ns;
  query.matches = [&filter](const Json& parts) { return filter.Matches(parts); };
  query.label = filter.selector.RequiredLabel();
  query.after = after;
  query.limit = static_cast<std::size_t>(asked.call.Integer("limit").value_or(50)) + 1;
  absl::Status judged;
  std::map<std::string, std::string> uids;  // by namespace; empty: there is none
  if (options_.namespace_uid != nullptr) {
    query.visible = [&](const std::string& ns, const std::string& ns_uid) {
      const auto [known, added] = uids.try_emplace(ns);
      if (added) {
        absl::StatusOr<std::string> uid = options_.namespace_uid(ns);
        if (uid.ok()) known->second = *std::move(uid);
        if (!uid.ok() && !absl::IsNotFound(uid.status())) judged = uid.status();
      }
      // Who may list the jobs of all namespaces sees those of the ones that are gone, too.
      return known->second.empty() ? filter.ns.empty() : known->second == ns_uid;
    };
  }
  absl::StatusOr<std::vector<history::ListedJob>> jobs = history_.List(query);
  if (jobs.ok() && !judged.ok()) jobs = judged;
  if (!jobs.ok()) return HistoryProblem(jobs.status());
  return *std::move(jobs);
}

RestService::Outcome RestService::PastLogs(const Asked& asked, const Json& job) {
  const absl::StatusOr<std::vector<history::LogTail>> logs = history_.Logs(kube::UidOf(job));
  if (!logs.ok()) return HistoryProblem(logs.status());
  const std::string pod = asked.call.Text("pod");
  const bool events = asked.request.Header("Accept").find(kEventStream) != std::string_view::npos;
  std::string text;
  bool known = pod.empty();
  for (const history::LogTail& log : *logs) {
    if ((!pod.empty() && log.pod != pod) || log.replaced != asked.call.Flag("previous")) continue;
    known = true;
    for (const std::string& line : LinesOf(log.text, asked.call.Integer("tail"))) {
      if (events) {
        text += EventText("log", json::Dump({{"pod", log.pod}, {"line", line}}));
      } else {
        absl::StrAppend(&text, pod.empty() ? absl::StrCat("[", log.pod, "] ") : "", line, "\n");
      }
    }
  }
  if (!known) {
    return rest::MakeProblem("NotFound", absl::StrCat("nothing is kept of what a pod \"", pod,
                                                      "\" of this job has written"));
  }
  if (events) text += EndText(asked.call.Flag("follow") ? "JobFinished" : "Complete");
  return http::Response{.body = std::move(text),
                        .content_type = events ? kEventStream : "text/plain; charset=utf-8",
                        .headers = {{"X-Accel-Buffering", "no"}}};
}

}  // namespace starling::service
