// SPDX-License-Identifier: Apache-2.0
#include "api/rest/routes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "api/rest/problem.h"
#include "common/status/check.h"

namespace starling::rest {
namespace {

#define STARLING_JOB_PATH "/v1/namespaces/{namespace}/jobs/{name}"

constexpr std::int64_t kMost = std::int64_t{1} << 53;

constexpr Parameter kDryRun{.name = "dryRun",
                            .kind = ValueKind::kChoice,
                            .meaning = "`All`: check everything, store nothing",
                            .choices = "All"};
constexpr Parameter kUid{.name = "uid",
                         .kind = ValueKind::kText,
                         .meaning = "only if the job of this name still is the one with this UID"};
constexpr Parameter kJobUid{.name = "uid",
                            .kind = ValueKind::kText,
                            .meaning = "of the job with this UID, be it there or a past one"};
constexpr Parameter kIncludeBoth{
    .name = "include",
    .kind = ValueKind::kChoices,
    .meaning = "jobs that are there, jobs that are kept though they were deleted",
    .choices = "live,history",
    .otherwise = "live,history"};
constexpr Parameter kIncludeLive{
    .name = "include",
    .kind = ValueKind::kChoices,
    .meaning = "jobs that are there, jobs that are kept though they were deleted",
    .choices = "live,history",
    .otherwise = "live"};
constexpr Parameter kLimit{.name = "limit",
                           .kind = ValueKind::kInteger,
                           .meaning = "jobs a page, at most",
                           .minimum = 1,
                           .maximum = 200,
                           .otherwise = "50"};
constexpr Parameter kContinue{
    .name = "continue", .kind = ValueKind::kText, .meaning = "the `continue` of the page before"};
constexpr Parameter kLabels{.name = "labelSelector",
                            .kind = ValueKind::kText,
                            .meaning = "as kubectl writes it: `team=vision,tier!=test`"};
constexpr Parameter kFields{.name = "fieldSelector",
                            .kind = ValueKind::kText,
                            .meaning = "as kubectl writes it: `metadata.name=digits`"};
constexpr Parameter kWatch{.name = "watch",
                           .kind = ValueKind::kBoolean,
                           .meaning = "tell what is and every change, as server-sent events",
                           .otherwise = "false"};
constexpr Parameter kTimeout{.name = "timeoutSeconds",
                             .kind = ValueKind::kInteger,
                             .meaning = "of a stream: it ends after so long",
                             .minimum = 1,
                             .maximum = 3600,
                             .otherwise = "3600"};
constexpr Parameter kIfMatch{.name = "If-Match",
                             .kind = ValueKind::kText,
                             .meaning = "only if this is still the job's ETag"};
constexpr Parameter kIfNoneMatch{
    .name = "If-None-Match", .kind = ValueKind::kText, .meaning = "304 if this still is the ETag"};
constexpr Parameter kLastEventId{
    .name = "Last-Event-ID",
    .kind = ValueKind::kText,
    .meaning = "of a stream: go on after this event, without what was told before"};
constexpr Parameter kIdempotencyKey{
    .name = "Idempotency-Key",
    .kind = ValueKind::kText,
    .meaning = "the same key and body again give the first job and make no other"};
constexpr Parameter kTraceparent{
    .name = "traceparent",
    .kind = ValueKind::kText,
    .meaning = "the job belongs to this trace (W3C Trace Context); what is none is ignored"};

const std::vector<Parameter>& ListQuery() {
  static const auto& query = *new std::vector<Parameter>{kLimit,       kContinue, kLabels, kFields,
                                                         kIncludeLive, kWatch,    kTimeout};
  return query;
}

const std::vector<Parameter>& UsageQuery() {
  static const auto& query = *new std::vector<Parameter>{
      {.name = "from",
       .kind = ValueKind::kText,
       .meaning = "what was used from then on (RFC 3339); by default from ever"},
      {.name = "to", .kind = ValueKind::kText, .meaning = "and before then; by default until now"},
      {.name = "by",
       .kind = ValueKind::kChoices,
       .meaning = "what sums are made of",
       .choices = "namespace,account,job",
       .otherwise = "namespace,account"}};
  return query;
}

std::vector<Route> MakeRoutes() {
  const std::string_view watch = "added, modified, deleted, bookmark, progress, end";
  return {
      {Operation::kCreateJob,
       "createJob",
       "POST",
       "/v1/namespaces/{namespace}/jobs",
       {"create", "trainingjobs"},
       "Submit a job: JSON, or YAML as in a job file",
       {kDryRun},
       {kIdempotencyKey, kTraceparent},
       "TrainingJob",
       201,
       "TrainingJob",
       "ForeignOrigin,NotFound,AlreadyExists,BodyTooLarge,UnsupportedMediaType,InvalidJob,"
       "InvalidRequest,IdempotencyKeyReused"},
      {Operation::kListJobs,
       "listJobs",
       "GET",
       "/v1/namespaces/{namespace}/jobs",
       {"list", "trainingjobs"},
       "List the jobs of a namespace, newest first",
       ListQuery(),
       {kLastEventId},
       "",
       200,
       "JobList",
       "Expired",
       watch},
      {Operation::kListAllJobs,
       "listAllJobs",
       "GET",
       "/v1/jobs",
       {"list", "trainingjobs"},
       "List the jobs of all namespaces, newest first",
       ListQuery(),
       {kLastEventId},
       "",
       200,
       "JobList",
       "Expired",
       watch},
      {Operation::kGetJob,
       "getJob",
       "GET",
       STARLING_JOB_PATH,
       {"get", "trainingjobs"},
       "Read a job, also when it was deleted, or watch it until it ends",
       {kUid, kIncludeBoth, kWatch, kTimeout},
       {kIfNoneMatch, kLastEventId},
       "",
       200,
       "TrainingJob",
       "NotFound,PreconditionFailed",
       watch},
      {Operation::kReplaceJob,
       "replaceJob",
       "PUT",
       STARLING_JOB_PATH,
       {"update", "trainingjobs"},
       "Replace a job's spec, labels and annotations",
       {kUid},
       {kIfMatch},
       "TrainingJob",
       200,
       "TrainingJob",
       "ForeignOrigin,NotFound,Conflict,PreconditionFailed,BodyTooLarge,UnsupportedMediaType,"
       "InvalidJob,InvalidRequest"},
      {Operation::kPatchJob,
       "patchJob",
       "PATCH",
       STARLING_JOB_PATH,
       {"patch", "trainingjobs"},
       "Change parts of a job by a merge patch (RFC 7386)",
       {kUid},
       {kIfMatch},
       "JobPatch",
       200,
       "TrainingJob",
       "ForeignOrigin,NotFound,Conflict,PreconditionFailed,BodyTooLarge,UnsupportedMediaType,"
       "InvalidJob,InvalidRequest"},
      {Operation::kDeleteJob,
       "deleteJob",
       "DELETE",
       STARLING_JOB_PATH,
       {"delete", "trainingjobs"},
       "Delete a job, with its pods and all that it has written",
       {kUid},
       {kIfMatch},
       "",
       200,
       "TrainingJob",
       "ForeignOrigin,NotFound,Conflict,PreconditionFailed"},
      {Operation::kGetScale,
       "getScale",
       "GET",
       STARLING_JOB_PATH "/scale",
       {"get", "trainingjobs"},
       "Read how many of each role are wanted and are there",
       {},
       {},
       "",
       200,
       "Scale",
       "NotFound"},
      {Operation::kSetScale,
       "setScale",
       "PUT",
       STARLING_JOB_PATH "/scale",
       {"update", "trainingjobs/scale"},
       "Set how many of a role are wanted",
       {},
       {kIfMatch},
       "ScaleRequest",
       200,
       "Scale",
       "ForeignOrigin,NotFound,Conflict,PreconditionFailed,UnsupportedMediaType,InvalidJob,"
       "InvalidRequest"},
      {Operation::kSuspendJob,
       "suspendJob",
       "POST",
       STARLING_JOB_PATH ":suspend",
       {"patch", "trainingjobs"},
       "Save a job and let its pods go",
       {kUid},
       {kIfMatch},
       "",
       202,
       "TrainingJob",
       "ForeignOrigin,NotFound,Conflict,NotPossibleNow,PreconditionFailed"},
      {Operation::kResumeJob,
       "resumeJob",
       "POST",
       STARLING_JOB_PATH ":resume",
       {"patch", "trainingjobs"},
       "Let a suspended job go on",
       {kUid},
       {kIfMatch},
       "",
       202,
       "TrainingJob",
       "ForeignOrigin,NotFound,Conflict,NotPossibleNow,PreconditionFailed"},
      {Operation::kCheckpointJob,
       "checkpointJob",
       "POST",
       STARLING_JOB_PATH ":checkpoint",
       {"patch", "trainingjobs"},
       "Ask for a checkpoint at the next settled step; once it is written "
       "`status.requestedCheckpoint` says which, beside the word of the answer's annotation "
       "`starling.dev/checkpoint-requested-at`",
       {kUid},
       {kIfMatch},
       "",
       202,
       "TrainingJob",
       "ForeignOrigin,NotFound,Conflict,NotPossibleNow,PreconditionFailed"},
      {Operation::kListPods,
       "listPods",
       "GET",
       STARLING_JOB_PATH "/pods",
       {"list", "pods"},
       "List a job's pods",
       {},
       {},
       "",
       200,
       "PodList",
       "NotFound"},
      {Operation::kListEvents,
       "listEvents",
       "GET",
       STARLING_JOB_PATH "/events",
       {"list", "events"},
       "List what the controller told of a job and its pods, oldest first; of past jobs too",
       {kJobUid},
       {},
       "",
       200,
       "EventList",
       "NotFound"},
      {Operation::kListIncidents,
       "listIncidents",
       "GET",
       STARLING_JOB_PATH "/incidents",
       {"get", "trainingjobs"},
       "List what failed, why, what was done and what it cost; of past jobs too",
       {kJobUid},
       {},
       "",
       200,
       "IncidentList",
       "NotFound"},
      {Operation::kGetMetrics,
       "getMetrics",
       "GET",
       STARLING_JOB_PATH "/metrics",
       {"get", "trainingjobs"},
       "Read how a metric went, of past jobs too: at most 2,000 points",
       {kJobUid,
        {.name = "name",
         .kind = ValueKind::kText,
         .meaning = "such as loss, samplesPerSecond or validation/accuracy; by default all",
         .otherwise = ""},
        {.name = "from",
         .kind = ValueKind::kInteger,
         .meaning = "the first step",
         .minimum = 0,
         .maximum = kMost,
         .otherwise = "0"},
        {.name = "points",
         .kind = ValueKind::kInteger,
         .meaning = "at most so many of each metric",
         .minimum = 1,
         .maximum = 2000,
         .otherwise = "2000"}},
       {},
       "",
       200,
       "Metrics",
       "NotFound"},
      {Operation::kGetLogs,
       "getLogs",
       "GET",
       STARLING_JOB_PATH "/logs",
       {"get", "pods/log"},
       "Read what a job's pods have written: text, or lines as server-sent events "
       "(`Accept: text/event-stream`); of past jobs the last 256 KiB a pod",
       {kJobUid,
        {.name = "pod", .kind = ValueKind::kText, .meaning = "of this pod alone"},
        {.name = "follow",
         .kind = ValueKind::kBoolean,
         .meaning = "go on until the job has ended; it waits for pods",
         .otherwise = "false"},
        {.name = "tail",
         .kind = ValueKind::kInteger,
         .meaning = "only the last so many lines of each pod",
         .minimum = 0,
         .maximum = 1'000'000},
        {.name = "previous",
         .kind = ValueKind::kBoolean,
         .meaning = "of pods that were replaced, instead of those that are there",
         .otherwise = "false"},
        kTimeout},
       {},
       "",
       200,
       "",
       "NotFound",
       "log, end"},
      {Operation::kGetModel,
       "getModel",
       "GET",
       STARLING_JOB_PATH "/model",
       {"get", "trainingjobs/model"},
       "Fetch the trained model, a safetensors file",
       {},
       {{.name = "Range", .kind = ValueKind::kText, .meaning = "one range of bytes: `bytes=0-99`"},
        kIfNoneMatch},
       "",
       200,
       "",
       "NotFound,ModelNotKept,RangeNotSatisfiable"},
      {Operation::kValidateJob,
       "validateJob",
       "POST",
       "/v1/jobs:validate",
       kSignedIn,
       "Check a job and read what it means with preset and defaults filled in",
       {},
       {},
       "TrainingJob",
       200,
       "TrainingJob",
       "ForeignOrigin,BodyTooLarge,UnsupportedMediaType,InvalidJob"},
      {Operation::kPlanJob,
       "planJob",
       "POST",
       "/v1/namespaces/{namespace}/jobs:plan",
       {"create", "trainingjobs"},
       "Read what a job would take, what is left for it, and how long it would run",
       {},
       {},
       "TrainingJob",
       200,
       "Plan",
       "ForeignOrigin,BodyTooLarge,UnsupportedMediaType,InvalidJob,InvalidRequest"},
      {Operation::kGetUsage,
       "getUsage",
       "GET",
       "/v1/namespaces/{namespace}/usage",
       {"list", "trainingjobs"},
       "Sum up what the jobs of a namespace have used, past ones too",
       UsageQuery(),
       {},
       "",
       200,
       "Usage",
       ""},
      {Operation::kGetAllUsage,
       "getAllUsage",
       "GET",
       "/v1/usage",
       {"list", "trainingjobs"},
       "Sum up what the jobs of all namespaces have used, past ones too",
       UsageQuery(),
       {},
       "",
       200,
       "Usage",
       ""},
      {Operation::kListTemplates,
       "listTemplates",
       "GET",
       "/v1/namespaces/{namespace}/templates",
       {"list", "trainingjobs"},
       "List the templates that jobs of a namespace may name in spec.templateRef",
       {},
       {},
       "",
       200,
       "TemplateList",
       ""},
      {Operation::kWhoAmI,
       "whoAmI",
       "GET",
       "/v1/whoami",
       kSignedIn,
       "Read as whom you are known",
       {},
       {},
       "",
       200,
       "Caller",
       ""},
      {Operation::kGetVersion,
       "getVersion",
       "GET",
       "/v1/version",
       kEverybody,
       "Read which version this is",
       {},
       {},
       "",
       200,
       "Version",
       ""},
      {Operation::kGetOpenApi,
       "getOpenApi",
       "GET",
       "/openapi.json",
       kEverybody,
       "Read this interface as OpenAPI 3.1",
       {},
       {},
       "",
       200,
       "OpenApi",
       ""}};
}

}  // namespace

const std::vector<Route>& Routes() {
  static const auto& routes = *new std::vector<Route>(MakeRoutes());
  return routes;
}

const Route& RouteOf(Operation operation) {
  const auto& routes = Routes();
  const auto found = std::find_if(routes.begin(), routes.end(),
                                  [&](const Route& route) { return route.operation == operation; });
  STARLING_CHECK(found != routes.end(), "every operation has a row in the table of routes");
  return *found;
}

std::string CheckRoutes() {
  std::set<std::pair<std::string_view, std::string_view>> requests;
  std::set<std::string_view> ids;
  for (const Route& route : Routes()) {
    const std::string id(route.id);
    if (!requests.emplace(route.method, route.path).second) return id + ": this request is taken";
    if (!ids.insert(route.id).second) return id + ": this id is taken";
    const std::string codes =
        absl::StrCat(std::string(kCommonCodes), ",", std::string(route.codes));
    for (const absl::string_view code : absl::StrSplit(codes, ',', absl::SkipEmpty())) {
      if (FindProblem({code.data(), code.size()}) == nullptr) {
        return absl::StrCat(id, ": there is no problem ", code);
      }
    }
    const bool refuses = route.codes.find("ForeignOrigin") != std::string_view::npos;
    if (refuses != route.writes()) return id + ": whoever writes refuses pages of other servers";
  }
  return "";
}

}  // namespace starling::rest
