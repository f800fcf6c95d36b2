// SPDX-License-Identifier: Apache-2.0
#include "cli/history.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "api/spec/uris.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/history/sql_history.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"

namespace starling::cli {
namespace {

namespace fs = std::filesystem;
using kube::Json;

constexpr std::size_t kMostListed = 10'000;       // the newest
constexpr std::size_t kMostListedOverRest = 500;  // each is asked for

absl::Status Failed(const fs::path& path, const std::error_code& error) {
  return absl::UnavailableError(
      absl::StrCat("history: ", path.string(), ": ", error.message(), "; is the disk full?"));
}

// A second name for the same bytes where that is possible, else a copy.
absl::Status Keep(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::exists(to, error)) return absl::OkStatus();
  fs::create_hard_link(from, to, error);
  if (error) fs::copy_file(from, to, error);
  return error ? Failed(to, error) : absl::OkStatus();
}

absl::Status WriteWhole(const fs::path& path, const std::string& text) {
  const fs::path draft = path.string() + ".new";
  std::error_code error;
  {
    std::ofstream file(draft, std::ios::binary | std::ios::trunc);
    file << text << std::flush;
    if (!file) return Failed(draft, std::make_error_code(std::errc::io_error));
  }
  fs::rename(draft, path, error);
  return error ? Failed(path, error) : absl::OkStatus();
}

bool IsOlder(const Json& a, const Json& b) {
  return kube::StringAt(a, "/metadata/creationTimestamp") <
         kube::StringAt(b, "/metadata/creationTimestamp");
}

// The file may be read while the controller writes it.
std::unique_ptr<history::History> Open(const Home& home) {
  return history::OpenSqliteHistory(home.HistoryFile(), history::SqlHistory::Mode::kReadOnly);
}

// Whether the history is in this home's file.
absl::Status CheckPlace(const Session& session) {
  if (session.in_cluster()) {
    return absl::FailedPreconditionError(
        "a cluster's past jobs are kept by its REST service, not by its API server; ask that: "
        "STARLING_TOKEN=$(kubectl create token ACCOUNT) starling get jobs --history --server "
        "https://... (docs/how-to/rest.md)");
  }
  std::ifstream file(session.home().ControllerReady());
  const Json ready = Json::parse(file, nullptr, false);
  const std::string elsewhere = kube::StringAt(ready, "/historyUrl");
  if (elsewhere.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the controller of this home keeps its ", elsewhere, "; ask it by REST: GET ",
                   kube::StringAt(ready, "/restUrl"), "/v1/jobs?include=history"));
}

}  // namespace

absl::Status Archive(const Home& home, const Json& job) {
  const fs::path folder = resources::JobFolder(
      home.History(), {kube::NamespaceOf(job), kube::NameOf(job), kube::UidOf(job)});
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Failed(folder, error);
  Json kept = job;
  const auto model = spec::PathOfUri(kube::StringAt(job, "/status/result/model/uri"));
  if (model.ok() && fs::is_regular_file(*model, error)) {
    RETURN_IF_ERROR(Keep(*model, folder / "model.safetensors"));
    kept["status"]["result"]["model"]["uri"] = "file://" + (folder / "model.safetensors").string();
  }
  return WriteWhole(folder / "job.json", json::Dump(kept) + "\n");
}

std::vector<Json> ListArchive(const Home& home, std::string_view ns) {
  std::vector<Json> jobs;
  std::error_code error;
  for (fs::recursive_directory_iterator it(home.History(), error), end; it != end;
       it.increment(error)) {
    if (error || it->path().filename() != "job.json") continue;
    std::ifstream file(it->path(), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    Json job = Json::parse(text.str(), nullptr, false);
    if (job.is_discarded() || (!ns.empty() && kube::NamespaceOf(job) != ns)) continue;
    jobs.push_back(std::move(job));
  }
  std::sort(jobs.begin(), jobs.end(), IsOlder);
  return jobs;
}

absl::StatusOr<std::vector<Json>> ListPast(Session& session, const std::string& ns) {
  if (session.over_rest()) {
    ASSIGN_OR_RETURN(RestClient * rest, session.Rest());
    ASSIGN_OR_RETURN(std::vector<Json> jobs, rest->PastJobs(ns, kMostListedOverRest));
    std::reverse(jobs.begin(), jobs.end());
    return jobs;
  }
  RETURN_IF_ERROR(CheckPlace(session));
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  ASSIGN_OR_RETURN(const kube::ObjectList there, store->List(kube::kTrainingJob, ns, {}));
  std::set<std::string> uids;  // that are there, or are told already
  for (const Json& job : there.items) uids.insert(kube::UidOf(job));
  std::vector<Json> jobs;
  for (Json& job : ListArchive(session.home(), ns)) {
    if (uids.insert(kube::UidOf(job)).second) jobs.push_back(std::move(job));
  }
  const auto history = Open(session.home());
  history::ListQuery query{.ns = ns, .limit = kMostListed, .present_too = true};
  const auto listed = history->List(query);
  if (absl::IsNotFound(listed.status())) return jobs;  // nothing has been recorded yet
  RETURN_IF_ERROR(listed.status());
  for (const history::ListedJob& job : *listed) {
    if (!uids.insert(job.uid).second) continue;
    ASSIGN_OR_RETURN(const history::PastJob past,
                     history->Find({kube::StringAt(job.summary, "/namespace"), "",
                                    kube::StringAt(job.summary, "/name"), job.uid}));
    jobs.push_back(history::ObjectToShow(past));
  }
  std::stable_sort(jobs.begin(), jobs.end(), IsOlder);
  return jobs;
}

absl::StatusOr<PastStory> FindPast(Session& session, const kube::ObjectKey& key,
                                   const std::string& uid) {
  PastStory story;
  if (session.over_rest()) {
    ASSIGN_OR_RETURN(RestClient * rest, session.Rest());
    ASSIGN_OR_RETURN(Json past, rest->PastJob(key, uid));
    story.job.object = std::move(past["job"]);  // which says itself when it was gone
    for (Json& event : past["events"]) story.job.events.push_back(std::move(event));
    for (const auto& [metric, points] : past["metrics"].items()) {
      story.curves[metric] = history::PointsFromJson(points);
    }
    return story;
  }
  RETURN_IF_ERROR(CheckPlace(session));
  const auto history = Open(session.home());
  ASSIGN_OR_RETURN(story.job, history->Find({key.ns, "", key.name, uid}));
  ASSIGN_OR_RETURN(story.curves, history->Curves(kube::UidOf(story.job.object), ""));
  return story;
}

}  // namespace starling::cli
