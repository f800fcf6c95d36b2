// SPDX-License-Identifier: Apache-2.0
// The REST service: from a request to its answer.
//
// One function an operation of the route table (api/rest/routes.h), in the files named after what
// they are about. It reads and writes through KubeClient, as everything does, so that the same
// service stands before one machine's store and before an API server. What it shows of many jobs
// comes from the informer's copy, by way of the hub; what it shows of one comes from the store.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/rest/problem.h"
#include "api/rest/router.h"
#include "common/clock/clock.h"
#include "common/http/message.h"
#include "common/metrics/metrics.h"
#include "controller/history/history.h"
#include "controller/kube/kube_client.h"
#include "controller/rest/access.h"
#include "controller/rest/call_limits.h"
#include "controller/rest/job_files.h"
#include "controller/rest/job_hub.h"
#include "controller/rest/job_list.h"
#include "controller/rest/plan.h"
#include "controller/runtime/informer.h"
#include "controller/templates/templates.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::service {

struct ServiceOptions {
  std::string token;     // of the home's owner
  Door* door = nullptr;  // who is asked instead of comparing the token; outlives the service
  CallLimitOptions limits;
  std::string signing_key;  // of continue tokens and idempotency keys; the same after a restart
  std::string version;      // of the program
  // What administrators give; null: nothing, and jobs that name a template are not checked with it.
  std::shared_ptr<const templates::Templates> templates;
  // Whether a job's relative URIs mean something here; on one machine they would be relative to a
  // folder that the service does not know.
  bool relative_uris = false;
  // Of a namespace that is there: past jobs of an earlier one of its name are not shown. NotFound:
  // there is none. Null: namespaces are names alone.
  std::function<absl::StatusOr<std::string>(const std::string& ns)> namespace_uid = nullptr;
  // One job is read from the informer's copy too, where that has it, instead of from the store.
  bool reads_copy = false;
};

// Thread-safe.
class RestService {
 public:
  // What is referred to must outlive it. Before the informer's first turn.
  RestService(kube::KubeClient& store, runtime::Informer& jobs, const JobFiles& files,
              history::History& history, const clock::Clock& clock, metrics::Registry& registry,
              ServiceOptions options);

  // The informer's first list is in, and `port` is the server's: until then every request is
  // refused as one to another host.
  void Begin(int port);

  http::Response Answer(const http::Request& request);
  // What the server refuses before there is a request.
  http::Response Refuse(int status, std::string_view why) const;

 private:
  struct Asked {
    const http::Request& request;
    const rest::Call& call;
    const Caller& caller;
  };
  using Outcome = std::variant<http::Response, rest::Problem>;
  using Handler = Outcome (RestService::*)(const Asked&);

  static Handler HandlerOf(rest::Operation operation);
  Outcome Route(const http::Request& request, std::string& route, Caller& caller);
  // Too many requests of this caller, if so.
  std::optional<rest::Problem> CheckLimit(const std::string& caller, const rest::Route& route);

  // rest_jobs.cc
  Outcome CreateJob(const Asked& asked);
  Outcome ReplaceJob(const Asked& asked);
  Outcome PatchJob(const Asked& asked);
  Outcome DeleteJob(const Asked& asked);
  Outcome ValidateJob(const Asked& asked);
  // rest_control.cc
  Outcome GetScale(const Asked& asked);
  Outcome SetScale(const Asked& asked);
  Outcome SuspendJob(const Asked& asked);
  Outcome ResumeJob(const Asked& asked);
  Outcome CheckpointJob(const Asked& asked);
  Outcome TraceJob(const Asked& asked);
  // rest_reads.cc
  Outcome ListJobs(const Asked& asked);
  Outcome GetJob(const Asked& asked);
  Outcome ListPods(const Asked& asked);
  Outcome ListEvents(const Asked& asked);
  Outcome ListIncidents(const Asked& asked);
  Outcome GetMetrics(const Asked& asked);
  Outcome WhoAmI(const Asked& asked);
  Outcome GetVersion(const Asked& asked);
  Outcome GetOpenApi(const Asked& asked);
  // rest_past.cc
  // A job that is there or, where the caller takes that, as it was.
  struct Told {
    kube::Json object;
    std::optional<history::PastJob> past;  // the object is no more
  };
  std::variant<Told, rest::Problem> FindLiveOrPast(const Asked& asked);
  absl::StatusOr<history::PastJob> FindKept(const Asked& asked, const std::string& uid);
  std::variant<std::vector<history::ListedJob>, rest::Problem> ListPast(
      const Asked& asked, const JobFilter& filter, const std::optional<Place>& after);
  std::variant<std::map<std::string, history::Points>, rest::Problem> CurvesOf(
      const Told& told, const std::string& metric);
  Outcome PastLogs(const Asked& asked, const kube::Json& job);
  // rest_plan.cc
  Outcome PlanJob(const Asked& asked);
  Outcome GetUsage(const Asked& asked);
  std::vector<PastRun> RunsLike(const kube::Json& job);
  absl::Status EachPast(const std::string& ns,
                        const std::function<bool(const history::ListedJob&)>& take);
  // rest_templates.cc
  Outcome ListTemplates(const Asked& asked);
  // Lays the template that the job names under it, and checks the job with it.
  spec::FieldErrors TryTemplate(kube::Json& job) const;
  // rest_files.cc
  Outcome GetLogs(const Asked& asked);
  Outcome GetModel(const Asked& asked);
  Outcome GetTrace(const Asked& asked);

  Outcome Watch(const Asked& asked, JobFilter filter, bool whole);
  Outcome SetSuspend(const Asked& asked, bool suspend);
  Outcome SetWorkers(const Asked& asked, const kube::Json& job, std::int64_t replicas);
  Outcome Patched(const Asked& asked, const kube::Json& job, kube::Json patch);
  Outcome Written(const Asked& asked, absl::StatusOr<kube::Json> job, int status);
  void AwaitCopy(const kube::Json& job) const;
  std::variant<kube::Json, rest::Problem> ReadSubmitted(const Asked& asked, std::string& prefix);
  // A submitted job with its template, and its spec with all defaults; nothing is stored.
  struct ResolvedJob {
    kube::Json job;
    v1alpha1::TrainingJobSpec spec;
  };
  std::variant<ResolvedJob, rest::Problem> ReadResolved(const Asked& asked);
  Outcome MeetExisting(const Asked& asked, const kube::Json& wanted, bool with_key);
  spec::FieldErrors CheckStored(const kube::Json& job) const;
  // As the caller sees it: what is done through it, the caller does.
  kube::KubeClient& StoreOf(const Asked& asked);
  absl::StatusOr<kube::Json> ReadJob(const Asked& asked);
  // The job that the path names, if the request's uid and If-Match fit it.
  std::variant<kube::Json, rest::Problem> FindJob(const Asked& asked);

  kube::KubeClient& store_;
  runtime::Informer& jobs_;
  const JobFiles& files_;
  history::History& history_;
  const clock::Clock& clock_;
  metrics::Registry& registry_;
  const ServiceOptions options_;
  const std::string openapi_;
  std::atomic<int> port_ = 0;
  CallLimits limits_;
  JobHub hub_;
};

// Whatever is wrong with the history, it is the service's to mend, not the caller's.
rest::Problem HistoryProblem(const absl::Status& status);

// JSON, on one line with a newline at its end.
http::Response JsonResponse(int status, const kube::Json& body);
// A whole job, with its ETag.
http::Response JobResponse(int status, kube::Json job);

}  // namespace starling::service
