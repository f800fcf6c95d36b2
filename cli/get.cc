// SPDX-License-Identifier: Apache-2.0
// get and describe: what there is.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "api/spec/field_error.h"
#include "api/yaml/yaml.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/history.h"
#include "cli/pages.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/kube/selector.h"
#include "controller/resources/names.h"

namespace starling::cli {
namespace {

using kube::Json;

struct KindName {
  std::string_view name;
  kube::ResourceKind kind;
};
// What people call the kinds; `explain` and kubectl say the same.
constexpr KindName kKindNames[] = {{"jobs", kube::kTrainingJob},
                                   {"job", kube::kTrainingJob},
                                   {"tj", kube::kTrainingJob},
                                   {"trainingjob", kube::kTrainingJob},
                                   {"trainingjobs", kube::kTrainingJob},
                                   {"pods", kube::kPod},
                                   {"pod", kube::kPod},
                                   {"po", kube::kPod},
                                   {"events", kube::kEvent},
                                   {"event", kube::kEvent},
                                   {"ev", kube::kEvent}};

struct Request {
  kube::ResourceKind kind;
  std::string ns;    // empty: all
  std::string name;  // empty: a list
  std::string output;
  std::string labels;
  bool history = false;
};

absl::StatusOr<kube::ResourceKind> FindKind(const std::string& word) {
  std::vector<std::string> known;
  for (const KindName& kind : kKindNames) {
    if (kind.name == word) return kind.kind;
    known.emplace_back(kind.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("there are jobs, pods and events, but no \"", word,
                                                 "\"", spec::DidYouMean(word, known)));
}

absl::StatusOr<Request> ToRequest(const Arguments& arguments) {
  Request request;
  std::string word = arguments.names[0];
  if (word.find('/') != std::string::npos) {
    request.name = WithoutKind(arguments.names[0], &word);
  }
  ASSIGN_OR_RETURN(request.kind, FindKind(word));
  if (arguments.names.size() == 2) request.name = WithoutKind(arguments.names[1]);
  request.ns = arguments.Has("all-namespaces") ? "" : NamespaceOf(arguments);
  request.output = arguments.Get("output");
  request.labels = arguments.Get("selector");
  request.history = arguments.Has("history");
  constexpr std::string_view kOutputs[] = {"", "wide", "json", "yaml", "name"};
  if (std::find(std::begin(kOutputs), std::end(kOutputs), request.output) == std::end(kOutputs)) {
    return absl::InvalidArgumentError(
        absl::StrCat("-o ", request.output, ": one of wide, json, yaml, name"));
  }
  if (request.history && !(request.kind == kube::kTrainingJob)) {
    return absl::InvalidArgumentError("--history is of jobs only");
  }
  return request;
}

absl::StatusOr<std::vector<Json>> Fetch(Session& session, const Request& request) {
  if (request.history) {
    ASSIGN_OR_RETURN(std::vector<Json> jobs, ListPast(session, request.ns));
    const std::string fields =
        request.name.empty() ? "" : absl::StrCat("metadata.name=", request.name);
    ASSIGN_OR_RETURN(const kube::Selector selector,
                     kube::Selector::Parse(request.kind, {request.labels, fields}));
    std::erase_if(jobs, [&](const Json& job) { return !selector.Matches(job); });
    return jobs;
  }
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  if (!request.name.empty() && !request.ns.empty()) {
    ASSIGN_OR_RETURN(Json object, store->Get(request.kind, {request.ns, request.name}));
    std::vector<Json> objects;
    objects.push_back(std::move(object));
    return objects;
  }
  const std::string fields =
      request.name.empty() ? "" : absl::StrCat("metadata.name=", request.name);
  ASSIGN_OR_RETURN(kube::ObjectList list,
                   store->List(request.kind, request.ns, {{request.labels, fields}, 0, ""}));
  return std::move(list.items);
}

// One object, or a List of them, as kubectl has it.
Json Document(const Request& request, const std::vector<Json>& objects) {
  if (!request.name.empty() && objects.size() == 1) return objects[0];
  return {{"apiVersion", "v1"}, {"kind", "List"}, {"items", objects}};
}

std::string Names(const Request& request, const std::vector<Json>& objects) {
  const std::string kind = request.kind == kube::kTrainingJob ? "trainingjob.starling.dev"
                           : request.kind == kube::kPod       ? "pod"
                                                              : "event.events.k8s.io";
  std::string text;
  for (const Json& object : objects) absl::StrAppend(&text, kind, "/", kube::NameOf(object), "\n");
  return text;
}

std::string Render(const Request& request, const std::vector<Json>& objects, absl::Time now) {
  if (request.output == "name") return Names(request, objects);
  if (request.output == "json") return json::DumpPretty(Document(request, objects)) + "\n";
  if (request.output == "yaml") return yaml::Write(Document(request, objects));
  const bool wide = request.output == "wide";
  const bool with_namespace = request.ns.empty();
  if (request.kind == kube::kTrainingJob) return JobsTable(objects, wide, with_namespace, now);
  if (request.kind == kube::kPod) return PodsTable(objects, wide, with_namespace, now);
  return EventsTable(objects, wide, with_namespace, now);
}

absl::Status Get(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Request request, ToRequest(arguments));
  ASSIGN_OR_RETURN(const std::vector<Json> objects, Fetch(session, request));
  const bool table = request.output.empty() || request.output == "wide";
  if (objects.empty() && !request.name.empty()) {
    return absl::NotFoundError(absl::StrCat("\"", request.name, "\" not found"));
  }
  if (objects.empty() && table) {
    session.terminal().Say(
        absl::StrCat("no ", request.history ? "past " : "", std::string(request.kind.plural),
                     request.ns.empty() ? " at all" : absl::StrCat(" in namespace ", request.ns)));
    return absl::OkStatus();
  }
  session.terminal().Print(Render(request, objects, session.clock().WallNow()));
  return absl::OkStatus();
}

// Of the job itself and of its pods, those of an earlier job of the name left out.
std::vector<Json> EventsOf(const Json& job, const std::vector<Json>& pods,
                           std::vector<Json> events) {
  std::vector<std::string> uids = {kube::UidOf(job)};
  for (const Json& pod : pods) uids.push_back(kube::UidOf(pod));
  std::erase_if(events, [&](const Json& event) {
    return std::find(uids.begin(), uids.end(), kube::StringAt(event, "/regarding/uid")) ==
           uids.end();
  });
  return events;
}

// At least those of the job.
absl::StatusOr<std::vector<Json>> EventsNear(Session& session, const kube::ObjectKey& key) {
  if (session.over_rest()) {
    ASSIGN_OR_RETURN(RestClient * rest, session.Rest());
    return rest->PartsOf(key, "events");
  }
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  ASSIGN_OR_RETURN(kube::ObjectList events, store->List(kube::kEvent, key.ns, {}));
  return std::move(events.items);
}

// A job that is no more, if it is known; `missing` says that it is not there.
absl::Status DescribePast(Session& session, const kube::ObjectKey& key, const std::string& uid,
                          const absl::Status& missing) {
  if (session.in_cluster() && uid.empty()) return missing;
  const absl::StatusOr<PastStory> story = FindPast(session, key, uid);
  if (absl::IsNotFound(story.status()) && !missing.ok()) return missing;
  if (!story.ok() && uid.empty()) {
    return absl::NotFoundError(absl::StrCat(
        std::string(missing.message()), "; of the past: ", std::string(story.status().message())));
  }
  RETURN_IF_ERROR(story.status());
  session.terminal().Print(DescribePage(history::ObjectToShow(story->job), {}, story->job.events,
                                        session.clock().WallNow()) +
                           CurvesSection(story->curves));
  return absl::OkStatus();
}

absl::Status Describe(Session& session, const Arguments& arguments) {
  if (arguments.names.size() == 2) {
    ASSIGN_OR_RETURN(const kube::ResourceKind kind, FindKind(arguments.names[0]));
    if (!(kind == kube::kTrainingJob)) {
      return absl::InvalidArgumentError(
          "describe is for jobs; see: starling get pods NAME -o yaml");
    }
  }
  const kube::ObjectKey key = JobKey(arguments, arguments.names.back());
  const std::string uid = arguments.Get("uid");
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  const absl::StatusOr<Json> job = store->Get(kube::kTrainingJob, key);
  if (absl::IsNotFound(job.status()) || (job.ok() && !uid.empty() && uid != kube::UidOf(*job))) {
    return DescribePast(session, key, uid, job.status());
  }
  RETURN_IF_ERROR(job.status());
  ASSIGN_OR_RETURN(
      kube::ObjectList pods,
      store->List(kube::kPod, key.ns, {{resources::JobSelector(key.name), ""}, 0, ""}));
  ASSIGN_OR_RETURN(std::vector<Json> events, EventsNear(session, key));
  session.terminal().Print(DescribePage(
      *job, pods.items, EventsOf(*job, pods.items, std::move(events)), session.clock().WallNow()));
  return absl::OkStatus();
}

}  // namespace

int GetCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Get(session, arguments));
}

int DescribeCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Describe(session, arguments));
}

}  // namespace starling::cli
