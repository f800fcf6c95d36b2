// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/api_service.h"

#include <atomic>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "api/telemetry/metric_table.h"
#include "api/telemetry/process_metrics.h"
#include "common/bytes/bytes.h"
#include "common/http/http_server.h"
#include "common/http/server_certificate.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/admission/shared_secret.h"
#include "controller/history/recorder.h"
#include "controller/manager/namespaces.h"
#include "controller/manager/open_history.h"
#include "controller/manager/telemetry.h"
#include "controller/rest/cluster_access.h"
#include "controller/rest/cluster_logs.h"
#include "controller/rest/rest_service.h"
#include "controller/rest/summary.h"
#include "controller/runtime/informer.h"
#include "controller/runtime/manager.h"
#include "controller/templates/templates.h"
#include "controller/version/version.h"
#include "controller/web/page.h"

namespace starling::manager {
namespace {

constexpr int kServeThreads = 32;  // they wait for the API server
constexpr absl::Duration kJudgeStreamsEvery = absl::Seconds(5);
constexpr absl::Duration kLookAtCertificateEvery = absl::Minutes(1);
constexpr absl::Duration kApiRecordEvery = absl::Seconds(1);
constexpr char kSigningKey[] = "signing-key";

// The API server may come back.
bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsAborted(status) || absl::IsResourceExhausted(status);
}

runtime::InformerOptions AllJobs(const std::string& ns) {
  runtime::InformerOptions options;
  options.ns = ns;
  return options;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) return absl::UnavailableError(path + ": cannot be read");
  return text.str();
}

}  // namespace

// Destroyed from the last to the first: users go before what they use.
struct ApiService::Parts {
  Parts(ServeOptions given, ServiceConnection& connection, metrics::Registry& metrics,
        const clock::Clock& time)
      : options(std::move(given)),
        client(*connection.client),
        registry(metrics),
        clock(time),
        door(client, connection.open_as, clock, {.ns = options.cluster.ns}),
        jobs(client, kube::kTrainingJob, AllJobs(options.cluster.ns)),
        files(clock, options.models),
        namespaces(client, options.cluster.ns),
        process(registry, version::Current()),
        manager(clock, &registry) {}

  absl::Status StartHistory();
  absl::Status Prepare();
  absl::Status Serve();
  absl::StatusOr<admission::ServingCertificate> ReadCertificate();
  absl::Status LookAtCertificate();
  std::string NotReady() const;
  void Refresh();

  const ServeOptions options;
  kube::KubeClient& client;
  metrics::Registry& registry;
  const clock::Clock& clock;
  service::ClusterAccess door;
  runtime::Informer jobs;
  service::ClusterJobFiles files;
  Namespaces namespaces;
  std::unique_ptr<history::History> history;
  std::unique_ptr<history::Recorder> recorder;  // null: nothing is kept
  std::unique_ptr<service::RestService> rest;
  std::shared_ptr<http::ServerCertificate> certificate;  // null: HTTP
  std::string served;                                    // the certificate's text
  telemetry::ProcessMetrics process;
  runtime::Manager manager;
  std::unique_ptr<http::HttpServer> server;
  std::atomic<const http::HttpServer*> serving = nullptr;  // the same, for other threads
  std::atomic<bool> draining = false;
  std::unique_ptr<Telemetry> telemetry;
};

absl::StatusOr<admission::ServingCertificate> ApiService::Parts::ReadCertificate() {
  if (!options.tls_folder.empty()) {
    admission::ServingCertificate read;
    ASSIGN_OR_RETURN(read.certificate, ReadText(options.tls_folder + "/tls.crt"));
    ASSIGN_OR_RETURN(read.key, ReadText(options.tls_folder + "/tls.key"));
    return read;
  }
  admission::CertificatePolicy policy;
  policy.dns_names = admission::ServiceNames(options.service, options.secret_ns);
  policy.dns_names.emplace_back("localhost");  // for who forwards a port to it
  return admission::SharedCertificate(client, clock, {options.secret_ns, options.secret}, policy,
                                      "api");
}

// Open connections keep the certificate that they began with.
absl::Status ApiService::Parts::LookAtCertificate() {
  if (options.tls_folder.empty() && options.secret.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const admission::ServingCertificate current, ReadCertificate());
  if (current.certificate == served) return absl::OkStatus();
  if (certificate == nullptr) {
    ASSIGN_OR_RETURN(certificate,
                     http::ServerCertificate::Create(current.certificate, current.key));
  } else {
    RETURN_IF_ERROR(certificate->Replace(current.certificate, current.key));
    log::Info("certificate replaced", {});
  }
  served = current.certificate;
  return absl::OkStatus();
}

// Every replica records. All of them tell the same, and what is known already costs a look.
absl::Status ApiService::Parts::StartHistory() {
  if (history != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(history, OpenHistory(options.history));
  if (options.history.url.empty() && options.history.file.empty()) return absl::OkStatus();
  history::RecorderOptions recording;
  recording.summarize = service::SummaryOf;
  recording.namespace_uid = [this](const std::string& ns) { return namespaces.UidOf(ns); };
  recording.retention = options.history.retention;
  recorder = std::make_unique<history::Recorder>(*history, client, jobs, clock, registry,
                                                 std::move(recording));
  if (namespaces.copy() != nullptr) manager.AddInformer("namespaces", *namespaces.copy());
  manager.AddPeriodic("history", kApiRecordEvery, [this] {
    recorder->Flush();
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

// Before the informer begins: the service hears of all jobs from the first on.
absl::Status ApiService::Parts::Prepare() {
  RETURN_IF_ERROR(StartHistory());
  service::ServiceOptions service;
  service.door = &door;
  service.limits = {.reads_per_second = options.rest.caller_reads,
                    .writes_per_second = options.rest.caller_writes,
                    .streams = static_cast<int>(options.rest.caller_streams)};
  if (options.secret.empty()) {
    service.signing_key = bytes::RandomBytes(32);
  } else {
    ASSIGN_OR_RETURN(
        service.signing_key,
        admission::SharedKey(client, {options.secret_ns, options.secret}, kSigningKey));
  }
  service.version = version::Current();
  service.templates = std::make_shared<templates::ClusterTemplates>(client);
  service.relative_uris = true;  // they begin at a folder of the image
  service.reads_copy = true;
  if (recorder != nullptr) {
    service.namespace_uid = [this](const std::string& ns) { return namespaces.UidOf(ns); };
  }
  RETURN_IF_ERROR(LookAtCertificate());
  rest = std::make_unique<service::RestService>(client, jobs, files, *history, clock, registry,
                                                std::move(service));
  manager.AddInformer("trainingjobs", jobs);
  manager.AddPeriodic("streams", kJudgeStreamsEvery, [this] {
    door.JudgeStreams();
    return absl::OkStatus();
  });
  manager.AddPeriodic("certificate", kLookAtCertificateEvery, [this] {
    const absl::Status looked = LookAtCertificate();
    if (!looked.ok()) log::Warning("certificate", {{"error", looked.ToString()}});
    return absl::OkStatus();  // the one before is served until it ends
  });
  manager.Launch();
  return absl::OkStatus();
}

absl::Status ApiService::Parts::Serve() {
  const std::size_t colon = options.address.rfind(':');
  http::HttpServerOptions http;
  http.address = options.address.substr(0, colon);
  if (http.address == "localhost") http.address = "127.0.0.1";
  if (!http.address.empty() && http.address.front() == '[') {
    http.address = http.address.substr(1, http.address.size() - 2);
  }
  if (!absl::SimpleAtoi(options.address.substr(colon + 1), &http.port)) {
    return absl::InvalidArgumentError("--rest-bind-address: must be [HOST]:PORT");
  }
  http.max_connections = static_cast<int>(options.rest.connections);
  http.max_streams = static_cast<int>(options.rest.streams);
  http.handler_threads = kServeThreads;
  http.certificate = certificate;
  http.refusal = [this](int status, std::string_view why) { return rest->Refuse(status, why); };
  rest->Begin(0);
  auto started = http::HttpServer::Start(std::move(http), [this](const http::Request& request) {
    auto page = web::Answer(request);
    return page ? *std::move(page) : rest->Answer(request);
  });
  // Not one of those that pass.
  if (!started.ok()) return absl::FailedPreconditionError(started.status().message());
  server = *std::move(started);
  serving = server.get();
  telemetry::AddGauge(registry, "starling_http_streams_limit")
      .Set(static_cast<double>(options.rest.streams));
  log::Info("serving", {{"version", version::Current()}, {"port", server->port()}});
  return absl::OkStatus();
}

std::string ApiService::Parts::NotReady() const {
  if (draining) return "it ends";
  if (serving == nullptr) return "its copy of the jobs is not in yet";
  return "";
}

void ApiService::Parts::Refresh() {
  process.Update();
  const http::HttpServer* http = serving;
  if (http == nullptr) return;
  telemetry::AddGauge(registry, "starling_http_connections").Set(http->connections());
  telemetry::AddGauge(registry, "starling_http_streams").Set(http->streams());
}

absl::StatusOr<std::unique_ptr<ApiService>> ApiService::Start(const ServeOptions& options,
                                                              ServiceConnection& connection,
                                                              metrics::Registry& registry,
                                                              const clock::Clock& clock) {
  auto parts = std::make_unique<Parts>(options, connection, registry, clock);
  Parts& all = *parts;
  std::unique_ptr<ApiService> service(new ApiService(std::move(parts)));
  ASSIGN_OR_RETURN(all.telemetry,
                   Telemetry::Start({.metrics_address = options.cluster.metrics_bind_address,
                                     .probe_address = options.cluster.health_probe_bind_address,
                                     .refresh = [&all] { all.Refresh(); },
                                     .not_ready = [&all] { return all.NotReady(); }},
                                    registry));
  return service;
}

ApiService::ApiService(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

ApiService::~ApiService() {
  Parts& parts = *parts_;
  parts.draining = true;
  if (parts.server != nullptr) {
    absl::SleepFor(parts.options.linger);
    parts.server->Drain(parts.options.drain);
  }
  parts.telemetry.reset();
  parts.serving = nullptr;
  parts.server.reset();
  parts.manager.Stop();
  if (parts.recorder != nullptr) parts.recorder->Flush();
}

absl::Status ApiService::Advance() {
  Parts& parts = *parts_;
  absl::Status status;
  if (parts.rest == nullptr) {
    status = parts.Prepare();
  } else if (parts.server == nullptr && parts.jobs.HasSynced()) {
    status = parts.Serve();
  }
  if (!status.ok() && IsAway(status)) {
    log::Warning("not serving yet", {{"error", status.ToString()}});
    return absl::OkStatus();
  }
  return status;
}

int ApiService::port() const { return parts_->server == nullptr ? 0 : parts_->server->port(); }
int ApiService::probe_port() const { return parts_->telemetry->probe_port(); }

}  // namespace starling::manager
