// SPDX-License-Identifier: Apache-2.0
// starling-coordinator: the composition root. All its state is soft, so SIGTERM ends it with 0.
// Exit codes: 0 asked to leave, 1 failed, 2 bad flags or files.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/spec/job_file.h"
#include "api/telemetry/process_metrics.h"
#include "common/bytes/bytes.h"
#include "common/clock/clock.h"
#include "common/log/log.h"
#include "common/metrics/metrics_endpoint.h"
#include "common/net/address.h"
#include "common/net/ports.h"
#include "common/rpc/grpc_log.h"
#include "common/status/macros.h"
#include "common/tls/tls.h"
#include "trainer/coordinator/coordinator_shell.h"
#include "trainer/coordinator/options.h"
#include "trainer/membership/peer_coordinator.h"
#include "trainer/metric_export/open_exporters.h"
#include "trainer/parameter_server/shard_coordinator.h"

namespace starling::coordinator {
namespace {

constexpr int kFailed = 1;
constexpr int kBadInput = 2;

int Fail(int code, const absl::Status& status) {
  log::Error("the coordinator cannot go on", {{"why", std::string(status.message())}});
  std::fprintf(stderr, "starling-coordinator: %s\n", std::string(status.message()).c_str());
  return code;
}

std::string HostPort(const std::string& host, int port) {
  return net::ToString({host, static_cast<std::uint16_t>(port)});
}

// Blocked before any thread starts, so that only the wait in Serve gets them.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

absl::StatusOr<v1alpha1::TrainingJobSpec> ReadSpec(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("--spec: ", path, ": cannot be read"));
  return spec::ReadResolvedSpec(text.str());
}

membership::CoordinatorOptions MachineOptions(const Options& options) {
  membership::CoordinatorOptions machine;
  machine.boot_id = bytes::RandomUuid();
  machine.heartbeat_timeout = options.heartbeat_timeout;
  machine.takeover_timeout = options.takeover_timeout;
  return machine;
}

// Of the one that leads jobs of this kind.
MachineFactory FactoryFor(const Options& options, const v1alpha1::TrainingJobSpec& spec) {
  const membership::CoordinatorOptions machine = MachineOptions(options);
  if (!spec.exchange().has_parameter_server()) {
    return [machine]() -> std::unique_ptr<membership::Coordinator> {
      return std::make_unique<membership::PeerCoordinator>(machine);
    };
  }
  parameter_server::ShardCoordinator::Options shards;
  shards.common = machine;
  return [shards, spec]() -> std::unique_ptr<membership::Coordinator> {
    return std::make_unique<parameter_server::ShardCoordinator>(shards, spec);
  };
}

int Serve(const Options& options, tls::Identity identity, const v1alpha1::TrainingJobSpec& spec,
          const sigset_t& signals) {
  const clock::SystemClock clock;
  auto exporters = metric_export::OpenExporters(
      spec.export_(), {options.job_name, options.job_uid, options.pod_name}, clock);
  if (!exporters.ok()) return Fail(kBadInput, exporters.status());
  metrics::Registry registry;
  ShellOptions shell_options;
  shell_options.listen = HostPort(options.address, net::kCoordinatorPort);
  shell_options.member_port = net::kMemberPort;
  shell_options.standby_port = net::kCoordinatorPort;
  shell_options.identity = std::move(identity);
  shell_options.job_uid = options.job_uid;
  shell_options.job_name = options.job_name;
  shell_options.progress_file = options.progress_file;
  shell_options.exporters = *std::move(exporters);
  // The job has ended and everybody is gone: as if asked to leave.
  shell_options.on_done = [] { kill(getpid(), SIGTERM); };
  auto shell =
      CoordinatorShell::Start(std::move(shell_options), FactoryFor(options, spec), clock, registry);
  if (!shell.ok()) return Fail(kFailed, shell.status());
  telemetry::ProcessMetrics process(registry);
  auto endpoint =
      metrics::MetricsEndpoint::Start(options.address, net::kMetricsPort, registry, nullptr, [&] {
        process.Update();
        (*shell)->UpdateMetrics();
      });
  if (!endpoint.ok()) return Fail(kFailed, endpoint.status());
  log::Info("ready", {{"address", options.address}, {"pod", options.pod_name}});
  int signal = 0;
  sigwait(&signals, &signal);
  log::Info("asked to leave", {{"signal", signal}});
  return 0;
}

int Main(int argc, char** argv) {
  const sigset_t signals = BlockSignals();
  log::Start("coordinator");
  rpc::RouteGrpcLog();
  absl::StatusOr<Options> options = ParseOptions(std::vector<std::string>(argv + 1, argv + argc));
  if (!options.ok()) return Fail(kBadInput, options.status());
  if (const char* file = std::getenv("STARLING_PROGRESS_FILE")) options->progress_file = file;
  absl::StatusOr<tls::Identity> identity = tls::ReadIdentity(options->tls_path);
  if (!identity.ok()) return Fail(kBadInput, identity.status());
  const auto spec = ReadSpec(options->spec_path);
  if (!spec.ok()) return Fail(kBadInput, spec.status());
  return Serve(*options, *std::move(identity), *spec, signals);
}

}  // namespace
}  // namespace starling::coordinator

int main(int argc, char** argv) { return starling::coordinator::Main(argc, argv); }
