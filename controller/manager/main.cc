// SPDX-License-Identifier: Apache-2.0
// starling-controller: runs TrainingJobs, of one machine or of a cluster, until it is told to end.
// starling-controller serve: REST for those of a cluster.
#include <malloc.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock/clock.h"
#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/process/file_limit.h"
#include "common/rpc/grpc_log.h"
#include "controller/manager/api_service.h"
#include "controller/manager/cluster_connection.h"
#include "controller/manager/cluster_controller.h"
#include "controller/manager/controller.h"
#include "controller/manager/home_lock.h"
#include "controller/manager/options.h"
#include "controller/manager/serve_options.h"

namespace starling::manager {
namespace {

constexpr absl::Duration kIdleFor = absl::Seconds(2);
constexpr int kArenas = 2;
constexpr timespec kTick = {.tv_sec = 0, .tv_nsec = 200'000'000};

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "starling-controller: %s\n", std::string(status.message()).c_str());
  return code;
}

// Before any thread starts: all inherit the mask, and the signals come to sigtimedwait alone.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  return signals;
}

// Returns when a signal says so, or when there has been nothing to do for a while.
void AwaitEnd(const Controller& controller, const Options& options, const clock::Clock& clock,
              const sigset_t& signals) {
  absl::Time busy = clock.Now();
  while (sigtimedwait(&signals, nullptr, &kTick) < 0) {
    if (!controller.IsIdle()) busy = clock.Now();
    if (options.exit_when_idle && clock.Now() - busy >= kIdleFor) {
      log::Info("nothing left to do");
      return;
    }
  }
  log::Info("asked to end: all pods save their work");
}

int RunLocally(const Options& options, const sigset_t& signals) {
  const absl::StatusOr<HomeLock> lock = HomeLock::Take(options.home);
  if (!lock.ok()) return Fail(lock.status(), absl::IsAlreadyExists(lock.status()) ? 2 : 1);
  log::Start("starling-controller", options.log_level);
  rpc::RouteGrpcLog();
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const std::string folder = std::filesystem::path(program).parent_path().string();
  const clock::SystemClock clock;
  auto controller = Controller::Start(options, folder, clock);
  if (!controller.ok()) return Fail(controller.status(), 1);
  AwaitEnd(**controller, options, clock, signals);
  controller->reset();
  return 0;
}

int RunInCluster(const Options& options, const sigset_t& signals) {
  // An arena for each thread would hold on to what copies of thousands of jobs once needed.
  mallopt(M_ARENA_MAX, kArenas);
  // Each large buffer would have malloc merge all small free blocks: a tenth of the time.
  mallopt(M_MXFAST, 0);
  log::Start("starling-controller", options.log_level);
  rpc::RouteGrpcLog();
  metrics::Registry registry;
  const clock::SystemClock clock;
  const auto connection = ConnectToCluster(options.cluster, registry);
  if (!connection.ok()) return Fail(connection.status(), 1);
  auto controller = ClusterController::Start(options, *connection->client,
                                             *connection->lease_client, registry, clock);
  if (!controller.ok()) return Fail(controller.status(), 1);
  do {
    const absl::StatusOr<ClusterState> state = (*controller)->Advance();
    if (!state.ok()) return Fail(state.status(), 1);
    if (*state == ClusterState::kLost) {
      // At once: nothing may be waited for, and what is under way may write no more.
      log::Error("the lease is lost: this process ends");
      std::_Exit(1);
    }
  } while (sigtimedwait(&signals, nullptr, &kTick) < 0);
  log::Info("asked to end: another controller may take over");
  controller->reset();
  return 0;
}

int RunService(const ServeOptions& options, const sigset_t& signals) {
  mallopt(M_ARENA_MAX, kArenas);
  log::Start("starling-api", options.log_level);
  metrics::Registry registry;
  const clock::SystemClock clock;
  auto connection = ConnectAsService(options.cluster, registry);
  if (!connection.ok()) return Fail(connection.status(), 1);
  auto service = ApiService::Start(options, *connection, registry, clock);
  if (!service.ok()) return Fail(service.status(), 1);
  do {
    if (const absl::Status status = (*service)->Advance(); !status.ok()) return Fail(status, 1);
  } while (sigtimedwait(&signals, nullptr, &kTick) < 0);
  log::Info("asked to end: clients go to another replica");
  service->reset();
  return 0;
}

int Serve(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") {
      return std::fputs(ServeUsage().c_str(), stdout) < 0 ? 1 : 0;
    }
  }
  const sigset_t signals = BlockSignals();
  const absl::StatusOr<ServeOptions> options = ParseServeOptions(arguments);
  if (!options.ok()) return Fail(options.status(), 2);
  process::RaiseFileLimit();
  return RunService(*options, signals);
}

int Main(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == "serve") {
    return Serve({arguments.begin() + 1, arguments.end()});
  }
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h")
      return std::fputs(Usage().c_str(), stdout) < 0 ? 1 : 0;
  }
  const sigset_t signals = BlockSignals();
  const absl::StatusOr<Options> options = ParseOptions(arguments);
  if (!options.ok()) return Fail(options.status(), 2);
  process::RaiseFileLimit();  // each connection, watch and stream is a file
  if (!options->home.empty()) return RunLocally(*options, signals);
  return RunInCluster(*options, signals);
}

}  // namespace
}  // namespace starling::manager

int main(int argc, char** argv) {
  return starling::manager::Main(std::vector<std::string>(argv + 1, argv + argc));
}
