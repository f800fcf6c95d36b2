// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/options.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/flags/flags.h"
#include "common/status/macros.h"
#include "controller/admission/webhook.h"
#include "controller/manager/open_history.h"
#include "controller/scheduling/gang.h"

namespace starling::manager {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

namespace {

constexpr absl::Duration kShortest = absl::Milliseconds(100);
constexpr const char* kLocal = "On one machine";
constexpr const char* kCluster = "In a cluster";

void SetLevel(const std::string& text, log::Level& level) {
  constexpr std::pair<const char*, log::Level> kLevels[] = {{"debug", log::Level::kDebug},
                                                            {"info", log::Level::kInfo},
                                                            {"warning", log::Level::kWarning},
                                                            {"error", log::Level::kError}};
  for (const auto& [name, value] : kLevels) {
    if (text != name) continue;
    level = value;
    return;
  }
  throw CLI::ValidationError("--log-level", text + " must be debug, info, warning or error");
}

// Empty, or what an address must be.
std::string CheckAddress(const std::string& text) {
  int port = 0;
  const std::size_t colon = text.rfind(':');
  const bool valid = text == "0" || (colon != std::string::npos &&
                                     absl::SimpleAtoi(text.substr(colon + 1), &port) && port >= 0 &&
                                     port <= 65535);
  return valid ? "" : text + " must be [HOST]:PORT, such as :8080, or 0 for none";
}

std::string CheckGangScheduler(const std::string& text) {
  if (scheduling::IsGangSchedulerName(text)) return "";
  return text + " must be auto, none, coscheduling, volcano or native";
}

void AddGeneral(flags::App& app, Options& options) {
  app.option_defaults()->always_capture_default()->group("In both");
  app.AddDuration("--coordinator-silence", options.coordinator_silence, kShortest,
                  "replace a coordinator that is silent for this long");
  AddLogLevel(app, options.log_level);
  app.option_defaults()->group(kLocal);
  app.add_option("--home", options.home, "where store, job folders and lock lie (STARLING_HOME)");
  app.add_flag("--exit-when-idle", options.exit_when_idle,
               "exit once no job is active for two seconds");
}

void AddRest(flags::App& app, RestOptions& rest) {
  app.option_defaults()->group(kLocal);
  app.add_option("--rest-port", rest.port, "where REST is, on 127.0.0.1; 0: any free port")
      ->check(CLI::Range(0, 65535));
  AddRestLimits(app, rest);
}

void AddHistory(flags::App& app, HistoryOptions& history) {
  app.option_defaults()->group(kLocal);
  app.add_option(
         "--history-url", history.url,
         "a PostgreSQL database for what is kept of past jobs, postgresql://user@host/name; "
         "passwords from PGPASSWORD or PGPASSFILE (HOME/history.db)")
      ->check(CheckHistoryUrl);
  AddRetention(app, history.retention);
}

void AddElection(flags::App& app, ClusterOptions& cluster) {
  app.add_flag("--leader-elect", cluster.leader_elect,
               "of several controllers let one act (true; --leader-elect=false)");
  app.add_option("--leader-election-namespace", cluster.election.ns,
                 "where the lease is (POD_NAMESPACE, starling-system)");
  app.AddDuration("--leader-elect-lease-duration", cluster.election.duration, kShortest,
                  "others wait for so long before they take it");
  app.AddDuration("--leader-elect-renew-deadline", cluster.election.renew_deadline, kShortest,
                  "a leader that cannot renew for so long stops");
  app.AddDuration("--leader-elect-retry-period", cluster.election.retry, kShortest,
                  "between two tries");
}

void AddCluster(flags::App& app, ClusterOptions& cluster) {
  app.option_defaults()->group(kCluster);
  AddConnection(app, cluster);
  app.add_option("--image", cluster.image,
                 "of job pods whose template names none (STARLING_IMAGE)");
  AddElection(app, cluster);
  app.add_option("--concurrent-reconciles", cluster.concurrent_reconciles,
                 "jobs that are looked at at the same time")
      ->check(CLI::Range(1, 256));
  app.add_option("--webhook-port", cluster.webhook_port,
                 "where jobs are validated (9443 in a pod); 0: nowhere")
      ->check(CLI::Range(0, 65535));
  app.add_option("--gang-scheduler", cluster.scheduling.gang_scheduler,
                 "auto (what is installed), none, coscheduling, volcano or native")
      ->check(CheckGangScheduler);
  app.add_option("--gang-scheduler-name", cluster.scheduling.gang_scheduler_name,
                 "schedulerName of gangs' pods, where it has one of its own");
  app.AddDuration("--sync-period", cluster.resync, kShortest,
                  "look at each job so often even if nothing changes");
}

bool AnyOfACluster(const flags::App& app) {
  const std::vector<const CLI::Option*> all = app.get_options();
  return std::any_of(all.begin(), all.end(), [](const CLI::Option* option) {
    return option->count() > 0 && option->get_group() == kCluster;
  });
}

std::string Absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

// Which home, where the command line leaves it open.
absl::Status ChooseHome(bool of_a_cluster, Options& options) {
  if (!options.home.empty()) {
    options.home = Absolute(options.home);
    if (!of_a_cluster) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--home is for one machine, but a flag of a cluster is given with it; leave one out");
  }
  if (of_a_cluster || !Environment("KUBERNETES_SERVICE_HOST").empty()) return absl::OkStatus();
  if (const std::string home = Environment("STARLING_HOME"); !home.empty()) {
    options.home = Absolute(home);
    return absl::OkStatus();
  }
  if (!Environment("KUBECONFIG").empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--home: must be given (or STARLING_HOME be set) to run jobs on this machine, or "
      "--kubeconfig to run them in a cluster");
}

void FillFromEnvironment(ClusterOptions& cluster) {
  cluster.ns = Environment("WATCH_NAMESPACE");
  cluster.image = Environment("STARLING_IMAGE");
  if (!Environment("KUBERNETES_SERVICE_HOST").empty())
    cluster.webhook_port = admission::kWebhookPort;
  if (const std::string ns = Environment("POD_NAMESPACE"); !ns.empty()) cluster.election.ns = ns;
}

}  // namespace

void AddLogLevel(flags::App& app, log::Level& level) {
  app.add_option_function<std::string>(
         "--log-level,--zap-log-level",
         [&level](const std::string& text) { SetLevel(text, level); },
         "debug, info, warning or error; kubebuilder's controllers call it zap-log-level")
      ->default_str("info");
}

void AddConnection(flags::App& app, ClusterOptions& cluster) {
  app.add_option("--kubeconfig", cluster.kubeconfig,
                 "which cluster, and as whom (KUBECONFIG, or the pod's own account)");
  app.add_option("--context", cluster.context, "of the kubeconfig, unlike its current one");
  app.add_option("--namespace", cluster.ns,
                 "look at the jobs of one namespace only (WATCH_NAMESPACE)");
  app.add_option("--metrics-bind-address", cluster.metrics_bind_address,
                 "where /metrics is; 0: nowhere")
      ->check(CheckAddress);
  app.add_option("--health-probe-bind-address", cluster.health_probe_bind_address,
                 "where /healthz and /readyz are; 0: nowhere")
      ->check(CheckAddress);
  app.add_option("--kube-api-qps", cluster.kube_api_qps,
                 "requests a second to the API server; 0: no limit of ours")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--kube-api-burst", cluster.kube_api_burst, "requests at once")
      ->check(CLI::Range(1, 1'000'000));
}

void AddRetention(flags::App& app, history::Retention& retention) {
  app.AddDuration("--history-age", retention.age, kShortest,
                  "forget jobs that have been deleted for longer");
  app.add_option("--history-jobs", retention.jobs, "beyond so many forget the oldest")
      ->check(CLI::Range(0, 100'000'000));
  app.add_option("--history-bytes", retention.bytes, "beyond so many forget the oldest")
      ->check(CLI::NonNegativeNumber);
}

void AddRestLimits(flags::App& app, RestOptions& rest) {
  app.add_option("--rest-connections", rest.connections,
                 "beyond so many the oldest idle or unknown one goes")
      ->check(CLI::Range(1, 65536));
  app.add_option("--rest-streams", rest.streams, "at once, of all callers")
      ->check(CLI::Range(1, 65536));
  app.add_option("--rest-caller-streams", rest.caller_streams, "at once, of one caller")
      ->check(CLI::Range(1, 65536));
  app.add_option("--rest-caller-writes", rest.caller_writes, "a second, of one caller; 0: no limit")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--rest-caller-reads", rest.caller_reads, "a second, of one caller; 0: no limit")
      ->check(CLI::Range(0.0, 1e6));
}

std::string Usage() {
  Options options;
  flags::App app;
  AddGeneral(app, options);
  AddRest(app, options.rest);
  AddHistory(app, options.history);
  AddCluster(app, options.cluster);
  app.name("starling-controller");
  app.description(
      "Runs TrainingJobs: those of one STARLING_HOME as processes of this machine, or those of a\n"
      "Kubernetes cluster as pods.");
  app.footer(
      "`starling-controller serve` is REST in a cluster; it has a --help of its own.\n"
      "SIGTERM: on one machine all pods save their work and end, and unfinished jobs go on when\n"
      "it is started again; in a cluster training goes on, and another controller takes over at\n"
      "once.\n"
      "Exit codes: 0 asked to end or idle, 1 failed or no longer the leader, 2 wrong flags or\n"
      "another controller runs.");
  return app.help();
}

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  FillFromEnvironment(options.cluster);
  flags::App app;
  AddGeneral(app, options);
  AddRest(app, options.rest);
  AddHistory(app, options.history);
  AddCluster(app, options.cluster);
  if (const absl::Status parsed = app.Parse(arguments); !parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parsed.message(), "; see starling-controller --help"));
  }
  RETURN_IF_ERROR(ChooseHome(AnyOfACluster(app), options));
  RETURN_IF_ERROR(runtime::CheckElection(options.cluster.election));
  return options;
}

}  // namespace starling::manager
