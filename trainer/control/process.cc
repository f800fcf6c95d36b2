// SPDX-License-Identifier: Apache-2.0
#include "trainer/control/process.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/spec/job_file.h"
#include "api/spec/uris.h"
#include "common/log/log.h"
#include "common/process/memory_keeper.h"
#include "common/rpc/grpc_log.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/control/stacks.h"

namespace starling::control {
namespace {

// After so long a process that hangs has ended, whatever it has written by then.
constexpr unsigned kMostSecondsToLeave = 3;
constexpr absl::Duration kPatienceWithAThread = absl::Milliseconds(50);
// In bytes: a supervisor keeps the last 4096 of a log.
constexpr std::size_t kMostOfAStack = 3000;

sigset_t LeaveSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

Options Begin(std::string_view component, int argc, char** argv) {
  const sigset_t signals = LeaveSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // every thread inherits it
  process::StartMemoryKeeper();
  log::Start(component);
  rpc::RouteGrpcLog();
  absl::StatusOr<Options> options = ParseOptions(std::vector<std::string>(argv + 1, argv + argc));
  if (options.ok()) {
    if (absl::Status read = ReadEnvironment(*options); !read.ok()) options = read;
  }
  if (!options.ok()) {
    std::fprintf(stderr, "starling-%s: %s\n", std::string(component).c_str(),
                 std::string(options.status().message()).c_str());
    Leave(kBadInput);
  }
  return *std::move(options);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  return text.str();
}

absl::StatusOr<v1alpha1::TrainingJobSpec> ReadSpec(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(v1alpha1::TrainingJobSpec spec, spec::ReadResolvedSpec(text));
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (!error) spec::MakeUrisAbsolute(spec, {.job_folder = "", .working_directory = here});
  return spec;
}

void Leave(int code) {
  std::fflush(nullptr);
  _exit(code);
}

void Fail(int code, const absl::Status& status) {
  log::Error("this process cannot go on", {{"why", std::string(status.message())}});
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  Leave(code);
}

void LeaveHung(std::int64_t thread) {
  // Whoever hangs may hold the log's lock, or the heap's.
  signal(SIGALRM, SIG_DFL);
  alarm(kMostSecondsToLeave);
  log::Error("this process stands still, and ends", {{"thread", thread}});
  for (const ThreadStack& stack : StacksOfOtherThreads(thread, kPatienceWithAThread)) {
    log::Error("stack", {{"thread", stack.thread},
                         {"name", stack.name},
                         {"state", stack.state},
                         {"kernel", stack.kernel},
                         {"frames", InOneLine(stack, kMostOfAStack)}});
  }
  _exit(kHung);
}

void WatchSignals(std::function<void()> terminate, absl::Duration grace,
                  std::function<void()> grace_over) {
  std::thread([terminate = std::move(terminate), grace, grace_over = std::move(grace_over)] {
    const sigset_t signals = LeaveSignals();
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) return;
    log::Info("asked to leave", {{"signal", signal}});
    terminate();
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(grace));
    grace_over();
  }).detach();
}

}  // namespace starling::control
