// SPDX-License-Identifier: Apache-2.0
#include "cli/rest_client.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/rest_watch.h"
#include "common/bytes/bytes.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/kube/selector.h"
#include "controller/resources/names.h"

namespace starling::cli {
namespace {

using kube::Json;
using kube::ObjectKey;
using kube::ResourceKind;

constexpr int kPage = 200;  // of a list; the service gives no more

std::string JobsPath(std::string_view ns) {
  if (ns.empty()) return "/v1/jobs";
  return absl::StrCat("/v1/namespaces/", http::PercentEncode(ns), "/jobs");
}

std::string JobPath(const ObjectKey& key) {
  return absl::StrCat(JobsPath(key.ns), "/", http::PercentEncode(key.name));
}

// "?a=b&c=d" of those whose value is not empty.
std::string Query(const std::vector<std::pair<std::string_view, std::string>>& parameters) {
  std::string query;
  for (const auto& [name, value] : parameters) {
    if (value.empty()) continue;
    absl::StrAppend(&query, query.empty() ? "?" : "&", std::string(name), "=",
                    http::PercentEncode(value));
  }
  return query;
}

absl::Status CannotBe(std::string_view what, std::string_view remedy) {
  return absl::UnimplementedError(
      absl::StrCat("over REST ", std::string(what), "; ", std::string(remedy)));
}

absl::Status OnlyJobs(const ResourceKind& kind) {
  if (kind == kube::kTrainingJob) return absl::OkStatus();
  return CannotBe(absl::StrCat(std::string(kind.plural), " cannot be written"),
                  "use kubectl, or --cluster");
}

// If-Match of the version that the caller saw.
void Expect(std::string_view version, http::Headers& headers) {
  if (version.empty()) return;
  headers.emplace_back("If-Match", absl::StrCat("\"", std::string(version), "\""));
}

// The name that "metadata.name=x" alone selects, or "starling.dev/job=x" among labels.
std::string NameIn(std::string_view selector, std::string_view key) {
  const std::vector<std::string> parts =
      absl::StrSplit(absl::string_view(selector.data(), selector.size()), ',');
  for (const std::string& part : parts) {
    const std::string prefix = absl::StrCat(std::string(key), "=");
    if (part.starts_with(prefix) && part.size() > prefix.size() && part[prefix.size()] != '=') {
      return part.substr(prefix.size());
    }
  }
  return "";
}

// autoscaling/v1, of the workers.
Json ScaleOf(const Json& job) {
  return {{"apiVersion", "autoscaling/v1"},
          {"kind", "Scale"},
          {"metadata",
           {{"name", kube::NameOf(job)},
            {"namespace", kube::NamespaceOf(job)},
            {"uid", kube::UidOf(job)},
            {"resourceVersion", kube::ResourceVersionOf(job)}}},
          {"spec", {{"replicas", kube::IntAt(job, "/spec/replicaSpecs/worker/replicas")}}},
          {"status",
           {{"replicas", kube::IntAt(job, "/status/replicas")},
            {"selector", kube::StringAt(job, "/status/selector")}}}};
}

std::string Trimmed(std::string text) {
  absl::StripAsciiWhitespace(&text);
  return text;
}

absl::Status Authorize(const kube::FileOrText& token, http::Request& request) {
  if (token.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string read, token.Read());
  const std::string text = Trimmed(read);
  if (text.empty() || !http::IsHeaderText(text) || text.find(' ') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(token.file.empty() ? "STARLING_TOKEN" : token.file,
                     ": the token is empty or has spaces in it"));
  }
  request.headers.emplace_back("Authorization", "Bearer " + text);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RestClient>> OpenRestClient(const RestServer& server) {
  http::ClientOptions options;
  options.peer = "the server";
  options.headers = {{"User-Agent", absl::StrCat("starling/", STARLING_VERSION)}};
  options.status_of = StatusOfProblem;
  // Read for each request: tokens are replaced.
  options.authorize = [token = server.token](http::Request& request, bool) {
    return Authorize(token, request);
  };
  options.tls = [authority = server.authority]() -> absl::StatusOr<http::ClientTls> {
    http::ClientTls tls;
    if (!authority.empty()) {
      ASSIGN_OR_RETURN(tls.authority, authority.Read());
    }
    return tls;
  };
  ASSIGN_OR_RETURN(auto http, http::HttpClient::Open(server.url, std::move(options)));
  return std::make_unique<RestClient>(std::move(http));
}

std::string JobOfPod(std::string_view pod) {
  const std::size_t dash = pod.rfind('-');
  std::int64_t index = 0;
  if (dash == std::string_view::npos ||
      !absl::SimpleAtoi(absl::string_view(pod.data() + dash + 1, pod.size() - dash - 1), &index)) {
    return "";
  }
  const std::string_view rest = pod.substr(0, dash);
  for (const std::string_view role : {"-worker", "-coordinator", "-parameter-server"}) {
    if (rest.ends_with(role) && rest.size() > role.size()) {
      return std::string(rest.substr(0, rest.size() - role.size()));
    }
  }
  return "";
}

absl::StatusOr<Json> RestClient::Ask(http::Request request) {
  ASSIGN_OR_RETURN(const http::Response answer, http_->Exchange(request));
  if (answer.status < 200 || answer.status > 299) return StatusOfProblem(answer);
  absl::StatusOr<Json> body = json::Parse(answer.body);
  if (body.ok() && body->is_object()) return body;
  return absl::UnavailableError(
      "the server's answer is no JSON object; is this the address of Starling's REST service?");
}

absl::StatusOr<Json> RestClient::Get(const ResourceKind& kind, const ObjectKey& key) {
  // What is there: the service would tell of a job that was deleted, too.
  if (kind == kube::kTrainingJob) return Ask({"GET", JobPath(key) + "?include=live", "", {}});
  if (!(kind == kube::kPod)) {
    return CannotBe(absl::StrCat("there is no single ", std::string(kind.kind)),
                    "list those of a job");
  }
  const std::string job = JobOfPod(key.name);
  if (job.empty()) {
    return absl::NotFoundError(absl::StrCat("pods \"", key.name, "\" not found: no job has it"));
  }
  ASSIGN_OR_RETURN(const std::vector<Json> pods, PartsOf({key.ns, job}, "pods"));
  for (const Json& pod : pods) {
    if (kube::NameOf(pod) == key.name) return pod;
  }
  return absl::NotFoundError(absl::StrCat("pods \"", key.name, "\" not found"));
}

absl::StatusOr<std::vector<Json>> RestClient::PartsOf(const ObjectKey& job, std::string_view part) {
  ASSIGN_OR_RETURN(Json list,
                   Ask({"GET", absl::StrCat(JobPath(job), "/", std::string(part)), "", {}}));
  std::vector<Json> parts;
  for (Json& item : list["items"]) parts.push_back(std::move(item));
  return parts;
}

absl::StatusOr<std::vector<Json>> RestClient::Summaries(std::string_view ns,
                                                        const kube::Selection& selection,
                                                        std::string& version,
                                                        std::string_view include,
                                                        std::size_t most) {
  std::vector<Json> summaries;
  std::string token;
  do {
    ASSIGN_OR_RETURN(Json page, Ask({"GET",
                                     JobsPath(ns) + Query({{"limit", absl::StrCat(kPage)},
                                                           {"include", std::string(include)},
                                                           {"labelSelector", selection.labels},
                                                           {"fieldSelector", selection.fields},
                                                           {"continue", token}}),
                                     "",
                                     {}}));
    if (token.empty()) version = kube::StringAt(page, "/resourceVersion");
    token = kube::StringAt(page, "/continue");
    for (Json& item : page["items"]) summaries.push_back(std::move(item));
  } while (!token.empty() && summaries.size() < most);
  if (summaries.size() > most) summaries.resize(most);
  return summaries;
}

absl::StatusOr<std::vector<Json>> RestClient::PastJobs(std::string_view ns, std::size_t most) {
  std::string version;
  ASSIGN_OR_RETURN(const std::vector<Json> summaries, Summaries(ns, {}, version, "history", most));
  std::vector<Json> jobs;
  for (const Json& summary : summaries) {
    auto job =
        Ask({"GET",
             JobPath({kube::StringAt(summary, "/namespace"), kube::StringAt(summary, "/name")}) +
                 Query({{"include", "history"}, {"uid", kube::StringAt(summary, "/uid")}}),
             "",
             {}});
    if (absl::IsNotFound(job.status())) continue;  // forgotten meanwhile, or of a former namespace
    RETURN_IF_ERROR(job.status());
    jobs.push_back(*std::move(job));
  }
  return jobs;
}

absl::StatusOr<Json> RestClient::PastJob(const ObjectKey& job, std::string_view uid) {
  const std::string path = JobPath(job);
  Json past;
  ASSIGN_OR_RETURN(
      past["job"],
      Ask({"GET", path + Query({{"include", "history"}, {"uid", std::string(uid)}}), "", {}}));
  const std::string query = Query({{"uid", kube::UidOf(past["job"])}});
  ASSIGN_OR_RETURN(Json events, Ask({"GET", path + "/events" + query, "", {}}));
  ASSIGN_OR_RETURN(Json metrics, Ask({"GET", path + "/metrics" + query, "", {}}));
  past["events"] = std::move(events["items"]);
  past["metrics"] = std::move(metrics["metrics"]);
  return past;
}

absl::StatusOr<kube::ObjectList> RestClient::ListJobs(std::string_view ns,
                                                      const kube::Selection& selection) {
  kube::ObjectList list;
  ASSIGN_OR_RETURN(const std::vector<Json> summaries,
                   Summaries(ns, selection, list.resource_version));
  for (const Json& summary : summaries) {
    auto job = Get(kube::kTrainingJob,
                   {kube::StringAt(summary, "/namespace"), kube::StringAt(summary, "/name")});
    if (absl::IsNotFound(job.status())) continue;  // deleted meanwhile
    RETURN_IF_ERROR(job.status());
    list.items.push_back(*std::move(job));
  }
  std::sort(list.items.begin(), list.items.end(),
            [](const Json& a, const Json& b) { return kube::KeyOf(a) < kube::KeyOf(b); });
  return list;
}

// Pods or events: those of the job that the labels name, else of all jobs of the namespace.
absl::StatusOr<kube::ObjectList> RestClient::ListParts(const ResourceKind& kind,
                                                       std::string_view ns,
                                                       const kube::Selection& selection) {
  ASSIGN_OR_RETURN(const kube::Selector selector, kube::Selector::Parse(kind, selection));
  std::vector<ObjectKey> jobs;
  if (const std::string named = NameIn(selection.labels, resources::kJobLabel);
      !named.empty() && !ns.empty()) {
    jobs.push_back({std::string(ns), named});
  } else {
    std::string version;
    ASSIGN_OR_RETURN(const std::vector<Json> summaries, Summaries(ns, {}, version));
    for (const Json& summary : summaries) {
      jobs.push_back({kube::StringAt(summary, "/namespace"), kube::StringAt(summary, "/name")});
    }
  }
  std::sort(jobs.begin(), jobs.end());
  kube::ObjectList list;
  for (const ObjectKey& job : jobs) {
    auto parts = PartsOf(job, kind == kube::kPod ? "pods" : "events");
    if (absl::IsNotFound(parts.status())) continue;
    RETURN_IF_ERROR(parts.status());
    for (Json& part : *parts) {
      if (selector.Matches(part)) list.items.push_back(std::move(part));
    }
  }
  return list;
}

absl::StatusOr<kube::ObjectList> RestClient::List(const ResourceKind& kind, std::string_view ns,
                                                  const kube::ListOptions& options) {
  if (options.limit != 0 || !options.continue_token.empty()) {
    return CannotBe("lists come whole", "ask without a limit");
  }
  if (kind == kube::kTrainingJob) return ListJobs(ns, options.selection);
  if (kind == kube::kPod || kind == kube::kEvent) return ListParts(kind, ns, options.selection);
  return CannotBe(absl::StrCat("there are no ", std::string(kind.plural)),
                  "use kubectl, or --cluster");
}

absl::StatusOr<std::unique_ptr<kube::WatchStream>> RestClient::Watch(
    const ResourceKind& kind, std::string_view ns, const kube::WatchOptions& options) {
  RETURN_IF_ERROR(OnlyJobs(kind));
  const std::string name = NameIn(options.selection.fields, "metadata.name");
  if (name.empty() || ns.empty()) {
    return CannotBe("one job is watched at a time", "name it: starling watch NAME");
  }
  auto watch = std::make_unique<RestWatch>(*http_, JobPath({std::string(ns), name}) + "?watch=true",
                                           options.resource_version);
  RETURN_IF_ERROR(watch->Start());
  return watch;
}

absl::StatusOr<Json> RestClient::Submit(const Json& object, bool dry_run) {
  http::Request request{
      "POST",
      JobsPath(kube::NamespaceOf(object).empty() ? "default" : kube::NamespaceOf(object)) +
          Query({{"dryRun", dry_run ? "All" : ""}}),
      json::Dump(object),
      {{"Content-Type", "application/json"}, {"Idempotency-Key", bytes::RandomUuid()}}};
  const auto created = Ask(request);
  // With its key the same request makes no second job.
  if (absl::IsUnavailable(created.status())) return Ask(std::move(request));
  return created;
}

absl::StatusOr<Json> RestClient::Create(const ResourceKind& kind, const Json& object) {
  RETURN_IF_ERROR(OnlyJobs(kind));
  return Submit(object, /*dry_run=*/false);
}

absl::StatusOr<Json> RestClient::DryRunCreate(const ResourceKind& kind, const Json& object) {
  RETURN_IF_ERROR(OnlyJobs(kind));
  return Submit(object, /*dry_run=*/true);
}

absl::StatusOr<Json> RestClient::Validate(const Json& object) {
  return Ask(
      {"POST", "/v1/jobs:validate", json::Dump(object), {{"Content-Type", "application/json"}}});
}

absl::StatusOr<Json> RestClient::Plan(const Json& object) {
  return Ask({"POST",
              JobsPath(kube::NamespaceOf(object)) + ":plan",
              json::Dump(object),
              {{"Content-Type", "application/json"}}});
}

absl::StatusOr<Json> RestClient::Usage(std::string_view ns, const std::string& from,
                                       const std::string& to) {
  const std::string of = ns.empty() ? "/v1" : absl::StrCat("/v1/namespaces/", std::string(ns));
  return Ask({"GET", absl::StrCat(of, "/usage", Query({{"from", from}, {"to", to}})), "", {}});
}

absl::StatusOr<std::string> RestClient::Trace(const ObjectKey& job, std::string& request) {
  const http::Request asked{"GET", JobPath(job) + "/trace", "", {}};
  ASSIGN_OR_RETURN(http::Response answer, http_->Exchange(asked));
  if (answer.status < 200 || answer.status > 299) return StatusOfProblem(answer);
  request = std::string(answer.Header("X-Trace-Request"));
  return std::move(answer.body);
}

absl::StatusOr<Json> RestClient::Update(const ResourceKind& kind, const Json& object) {
  RETURN_IF_ERROR(OnlyJobs(kind));
  if (kube::ResourceVersionOf(object).empty()) {
    return absl::InvalidArgumentError("metadata.resourceVersion: must be given for an update");
  }
  http::Request request{"PUT",
                        JobPath(kube::KeyOf(object)),
                        json::Dump(object),
                        {{"Content-Type", "application/json"}}};
  Expect(kube::ResourceVersionOf(object), request.headers);
  return Ask(std::move(request));
}

absl::StatusOr<Json> RestClient::Patch(const ResourceKind& kind, const ObjectKey& key,
                                       const Json& patch) {
  RETURN_IF_ERROR(OnlyJobs(kind));
  Json body = patch;
  http::Request request{"PATCH",
                        JobPath(key) + Query({{"uid", kube::UidOf(patch)}}),
                        "",
                        {{"Content-Type", "application/merge-patch+json"}}};
  Expect(kube::ResourceVersionOf(patch), request.headers);
  // Both are preconditions, which REST has elsewhere.
  if (Json* metadata = body.contains("metadata") ? &body["metadata"] : nullptr;
      metadata != nullptr && metadata->is_object()) {
    metadata->erase("uid");
    metadata->erase("resourceVersion");
    if (metadata->empty()) body.erase("metadata");
  }
  request.body = json::Dump(body);
  return Ask(std::move(request));
}

absl::StatusOr<Json> RestClient::UpdateStatus(const ResourceKind&, const Json&) {
  return CannotBe("nobody writes a status", "the controller does");
}

absl::StatusOr<Json> RestClient::PatchStatus(const ResourceKind&, const ObjectKey&, const Json&) {
  return CannotBe("nobody writes a status", "the controller does");
}

absl::StatusOr<Json> RestClient::Apply(const ResourceKind&, const Json&,
                                       const kube::ApplyOptions&) {
  return CannotBe("nobody owns fields, and there is no server-side apply",
                  "create the job or patch it, or use --cluster");
}

absl::StatusOr<bool> RestClient::Serves(const ResourceKind& kind) {
  return kind == kube::kTrainingJob || kind == kube::kPod || kind == kube::kEvent;
}

absl::StatusOr<Json> RestClient::Delete(const ResourceKind& kind, const ObjectKey& key,
                                        const kube::DeleteOptions& options) {
  RETURN_IF_ERROR(OnlyJobs(kind));
  http::Request request{"DELETE", JobPath(key) + Query({{"uid", options.uid}}), "", {}};
  Expect(options.resource_version, request.headers);
  return Ask(std::move(request));
}

absl::StatusOr<Json> RestClient::GetScale(const ResourceKind& kind, const ObjectKey& key) {
  RETURN_IF_ERROR(OnlyJobs(kind));
  ASSIGN_OR_RETURN(const Json job, Get(kind, key));
  return ScaleOf(job);
}

absl::StatusOr<Json> RestClient::UpdateScale(const ResourceKind& kind, const Json& scale) {
  RETURN_IF_ERROR(OnlyJobs(kind));
  const ObjectKey key = kube::KeyOf(scale);
  const Json body = {{"role", "worker"}, {"replicas", kube::At(scale, "/spec/replicas")}};
  http::Request request{
      "PUT", JobPath(key) + "/scale", json::Dump(body), {{"Content-Type", "application/json"}}};
  Expect(kube::ResourceVersionOf(scale), request.headers);
  RETURN_IF_ERROR(Ask(std::move(request)).status());
  return GetScale(kind, key);
}

std::unique_ptr<EventStream> RestClient::Logs(const ObjectKey& job, std::string_view pod,
                                              bool follow, std::optional<std::int64_t> tail) {
  return std::make_unique<EventStream>(
      *http_, JobPath(job) + "/logs" +
                  Query({{"pod", std::string(pod)},
                         {"follow", follow ? "true" : "false"},
                         {"tail", tail ? absl::StrCat(*tail) : std::string()}}));
}

}  // namespace starling::cli
