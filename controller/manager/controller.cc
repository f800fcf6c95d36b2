// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/controller.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/telemetry/metric_table.h"
#include "api/telemetry/process_metrics.h"
#include "common/http/http_server.h"
#include "common/json/json.h"
#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/metrics/metrics_endpoint.h"
#include "common/status/macros.h"
#include "common/tls/tls.h"
#include "controller/history/recorder.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/garbage_collector.h"
#include "controller/kube/objects.h"
#include "controller/kube/training_job_admission.h"
#include "controller/local/process_kubelet.h"
#include "controller/manager/idle.h"
#include "controller/manager/job_control.h"
#include "controller/manager/job_metrics.h"
#include "controller/manager/lease.h"
#include "controller/manager/open_history.h"
#include "controller/resources/credentials.h"
#include "controller/resources/names.h"
#include "controller/rest/access.h"
#include "controller/rest/pod_logs.h"
#include "controller/rest/rest_service.h"
#include "controller/rest/summary.h"
#include "controller/runtime/event_recorder.h"
#include "controller/runtime/informer.h"
#include "controller/runtime/manager.h"
#include "controller/templates/templates.h"
#include "controller/version/version.h"
#include "controller/web/page.h"

namespace starling::manager {
namespace {

constexpr absl::Duration kCollectGarbageEvery = absl::Milliseconds(500);
constexpr absl::Duration kRecordEvery = absl::Milliseconds(500);
constexpr absl::Duration kEventAge = absl::Hours(1);
constexpr absl::Duration kFirstLists = absl::Seconds(10);
constexpr absl::Duration kHalt = absl::Seconds(8);  // for a checkpoint, before the pods end
constexpr absl::Duration kHaltPoll = absl::Milliseconds(10);
constexpr absl::Duration kDrain = absl::Seconds(2);  // for clients of REST to take their answers
constexpr int kWorkers = 2;
constexpr int kRestThreads = 8;

std::string ReadyFile(const Options& options) { return options.home + "/controller.json"; }

// As the command line finds them, which admits jobs too.
std::shared_ptr<const templates::Templates> TemplatesOf(const Options& options) {
  return std::make_shared<templates::FolderTemplates>(options.home + "/templates");
}

// By rename, so that nobody reads half of it.
absl::Status WriteReadyFile(const Options& options, const clock::Clock& clock, int metrics_port,
                            int rest_port, const std::string& history_elsewhere) {
  kube::Json ready = {{"pid", getpid()},
                      {"startedAt", kube::FormatMicroTimestamp(clock.WallNow())},
                      {"version", version::Current()},
                      {"metricsAddress", absl::StrCat("127.0.0.1:", metrics_port)},
                      {"restUrl", absl::StrCat("http://127.0.0.1:", rest_port)}};
  if (!history_elsewhere.empty()) ready["historyUrl"] = history_elsewhere;
  const std::string path = ReadyFile(options);
  const std::string temporary = path + ".new";
  std::ofstream(temporary) << json::Dump(ready) << "\n";
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

// Destroyed from the last to the first: users go before what they use.
struct Controller::Parts {
  Parts(Options given, const clock::Clock& time, std::unique_ptr<kube::KubeClient> client)
      : options(std::move(given)),
        clock(time),
        store(std::move(client)),
        jobs(*store, kube::kTrainingJob, {}),
        pods(*store, kube::kPod, {}),
        queue(clock, {}),
        process(registry, version::Current()),
        counted(registry, clock, [] { return true; }),
        connections(telemetry::AddGauge(registry, "starling_http_connections")),
        streams(telemetry::AddGauge(registry, "starling_http_streams")),
        manager(clock, &registry) {}

  void StartControl(std::int64_t lease_transition, const std::string& seed,
                    const std::string& program_folder);
  void StartKubelet(const std::string& program_folder);
  absl::Status StartHistory();
  absl::Status PrepareRest(const std::string& seed);
  absl::Status ServeRest();
  http::Response Answer(const http::Request& request);
  void AddTasks();
  void HaltTraining();
  void UpdateMetrics();

  const Options options;
  const clock::Clock& clock;
  const std::unique_ptr<kube::KubeClient> store;
  metrics::Registry registry;
  runtime::Informer jobs;
  runtime::Informer pods;
  runtime::WorkQueue queue;
  telemetry::ProcessMetrics process;
  JobMetrics counted;
  metrics::Gauge connections;
  metrics::Gauge streams;
  std::unique_ptr<JobControl> control;
  std::unique_ptr<history::History> history;
  std::unique_ptr<history::Recorder> recorder;
  std::unique_ptr<local::ProcessKubelet> kubelet;
  std::unique_ptr<service::LocalJobFiles> files;
  std::unique_ptr<service::RestService> rest;
  runtime::Manager manager;
  std::atomic<int> rest_port = 0;  // 0: until then every request is refused
  std::unique_ptr<http::HttpServer> rest_server;
  std::atomic<const http::HttpServer*> serving = nullptr;  // the same, for who scrapes
  std::unique_ptr<metrics::MetricsEndpoint> endpoint;
  bool started = false;
};

void Controller::Parts::StartControl(std::int64_t lease_transition, const std::string& seed,
                                     const std::string& program_folder) {
  EnqueueJobs(jobs, queue);
  counted.Watch(jobs);
  EnqueueOwners(pods, queue);
  JobControlOptions control_options;
  control_options.decide.coordinator_silence = options.coordinator_silence;
  control_options.decide.lease_transition = lease_transition;
  control_options.platform.jobs_folder = options.home + "/jobs";
  control_options.platform.seed = seed;
  control_options.platform.python = program_folder + "/python";
  control_options.instance = "local";
  control = std::make_unique<JobControl>(*store, queue, clock, control_options);
}

// Before the kubelet: it hears that a job is gone before its folder goes.
absl::Status Controller::Parts::StartHistory() {
  HistoryOptions place = options.history;
  if (place.url.empty()) place.file = options.home + "/history.db";
  ASSIGN_OR_RETURN(history, OpenHistory(place));
  history::RecorderOptions recording;
  recording.summarize = service::SummaryOf;
  recording.read_logs = [folder = options.home + "/jobs"](const history::JobName& job) {
    return service::ReadLogTails(resources::JobFolder(folder, {job.ns, job.name, job.uid}));
  };
  recording.retention = options.history.retention;
  recording.quiet = absl::ZeroDuration();  // what the store knows it tells at once
  recorder = std::make_unique<history::Recorder>(*history, *store, jobs, clock, registry,
                                                 std::move(recording));
  return absl::OkStatus();
}

void Controller::Parts::StartKubelet(const std::string& program_folder) {
  local::KubeletOptions kubelet_options;
  kubelet_options.home = options.home;
  kubelet_options.program_folder = program_folder;
  kubelet_options.environment = local::PodEnvironment(kubelet_options);
  kubelet_options.may_remove = [this](const local::JobReference& job) {
    return recorder->LetGo({job.ns, "", job.name, job.uid});
  };
  kubelet = std::make_unique<local::ProcessKubelet>(*store, pods, jobs, clock, kubelet_options);
}

// Before the informers begin: the service hears of all jobs from the first on.
absl::Status Controller::Parts::PrepareRest(const std::string& seed) {
  service::ServiceOptions rest_options;
  ASSIGN_OR_RETURN(rest_options.token, service::EnsureToken(options.home + "/api.token"));
  rest_options.limits = {.reads_per_second = options.rest.caller_reads,
                         .writes_per_second = options.rest.caller_writes,
                         .streams = static_cast<int>(options.rest.caller_streams)};
  rest_options.signing_key = tls::DeriveBytes(seed, "starling/rest/signing", 32);
  rest_options.version = version::Current();
  rest_options.templates = TemplatesOf(options);
  files = std::make_unique<service::LocalJobFiles>(options.home + "/jobs", clock);
  rest = std::make_unique<service::RestService>(*store, jobs, *files, *history, clock, registry,
                                                std::move(rest_options));
  return absl::OkStatus();
}

// The page's files, or what REST says, which also refuses requests that are meant for another host.
http::Response Controller::Parts::Answer(const http::Request& request) {
  const auto host = service::CheckHost(request, {.token = "", .port = rest_port});
  if (std::holds_alternative<std::monostate>(host)) {
    if (auto page = web::Answer(request)) return *std::move(page);
  }
  return rest->Answer(request);
}

absl::Status Controller::Parts::ServeRest() {
  http::HttpServerOptions server;
  server.port = static_cast<int>(options.rest.port);
  server.max_connections = static_cast<int>(options.rest.connections);
  server.max_streams = static_cast<int>(options.rest.streams);
  server.handler_threads = kRestThreads;
  server.refusal = [this](int status, std::string_view why) { return rest->Refuse(status, why); };
  ASSIGN_OR_RETURN(rest_server,
                   http::HttpServer::Start(std::move(server), [this](const http::Request& request) {
                     return Answer(request);
                   }));
  rest_port = rest_server->port();
  rest->Begin(rest_port);
  serving = rest_server.get();
  telemetry::AddGauge(registry, "starling_http_streams_limit")
      .Set(static_cast<double>(options.rest.streams));
  return absl::OkStatus();
}

void Controller::Parts::AddTasks() {
  manager.AddInformer("trainingjobs", jobs);
  manager.AddInformer("pods", pods);
  manager.AddController("trainingjob", queue, control->reconciler(), kWorkers);
  manager.AddPeriodic("garbage-collector", kCollectGarbageEvery,
                      [this] { return kube::CollectGarbage(*store, kube::OwnedKinds()).status(); });
  manager.AddPeriodic("history", kRecordEvery, [this] {
    recorder->Flush();
    return absl::OkStatus();
  });
  manager.AddPeriodic("events", absl::Minutes(1), [this] {
    return runtime::DeleteOldEvents(*store, clock, kEventAge).status();
  });
}

void Controller::Parts::HaltTraining() {
  const absl::Time limit = clock.Now() + kHalt;
  control->reconciler().Halt();
  for (const auto& job : jobs.List()) queue.Add(kube::KeyOf(*job));
  while (!control->reconciler().Halted() && clock.Now() < limit) absl::SleepFor(kHaltPoll);
}

void Controller::Parts::UpdateMetrics() {
  manager.UpdateMetrics();
  queue.UpdateAges();
  process.Update();
  counted.Show(jobs.List(), control->links().Count());
  if (const http::HttpServer* server = serving.load(); server != nullptr) {
    connections.Set(server->connections());
    streams.Set(server->streams());
  }
}

absl::StatusOr<std::unique_ptr<Controller>> Controller::Start(const Options& options,
                                                              const std::string& program_folder,
                                                              const clock::Clock& clock) {
  kube::EmbeddedOptions store_options;
  store_options.path = options.home + "/store.db";
  store_options.admission["TrainingJob"] =
      kube::AdmitTrainingJobs(templates::Finder(TemplatesOf(options)));
  ASSIGN_OR_RETURN(auto store, kube::OpenEmbeddedKubeClient(clock, std::move(store_options)));
  ASSIGN_OR_RETURN(const std::int64_t transition,
                   TakeLease(*store, clock, {.identity = absl::StrCat("pid-", getpid())}));
  ASSIGN_OR_RETURN(const std::string seed, resources::EnsureSeed(*store));
  auto parts = std::make_unique<Parts>(options, clock, std::move(store));
  Parts& all = *parts;
  // From here on a failure ends what was started.
  std::unique_ptr<Controller> controller(new Controller(std::move(parts)));
  all.StartControl(transition, seed, program_folder);
  RETURN_IF_ERROR(all.StartHistory());
  all.StartKubelet(program_folder);
  RETURN_IF_ERROR(all.PrepareRest(seed));
  all.AddTasks();
  RETURN_IF_ERROR(all.manager.Start(kFirstLists));
  RETURN_IF_ERROR(all.kubelet->Start());
  RETURN_IF_ERROR(all.ServeRest());
  ASSIGN_OR_RETURN(all.endpoint, metrics::MetricsEndpoint::Start(
                                     "127.0.0.1", 0, all.registry,
                                     [&all]() -> std::string {
                                       return std::string(all.manager.Health().message());
                                     },
                                     [&all] { all.UpdateMetrics(); }));
  all.started = true;
  RETURN_IF_ERROR(WriteReadyFile(options, clock, all.endpoint->port(), all.rest_server->port(),
                                 options.history.url.empty() ? "" : all.history->name()));
  log::Info("controller ready", {{"home", options.home}, {"transition", transition}});
  return controller;
}

Controller::Controller(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Controller::~Controller() {
  Parts& parts = *parts_;
  std::remove(ReadyFile(parts.options).c_str());
  // Streams say goodbye while there still is something to say.
  if (parts.rest_server != nullptr) parts.rest_server->Drain(kDrain);
  // Training stops at a boundary and is saved, then the pods end: alone, each would wait for the
  // others to let it go.
  if (parts.started) parts.HaltTraining();
  parts.queue.ShutDown();
  if (parts.kubelet != nullptr) parts.kubelet->Stop(local::StopMode::kTerminatePods);
  parts.endpoint.reset();
  parts.manager.Stop();
  if (parts.recorder != nullptr) parts.recorder->Flush();
  parts.rest_server.reset();
}

bool Controller::IsIdle() const {
  return parts_->jobs.HasSynced() && parts_->queue.size() == 0 &&
         manager::IsIdle(parts_->jobs.List(), parts_->pods.List(), parts_->clock.WallNow());
}

}  // namespace starling::manager
