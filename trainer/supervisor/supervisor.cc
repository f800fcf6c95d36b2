// SPDX-License-Identifier: Apache-2.0
#include "trainer/supervisor/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "common/process/launch.h"
#include "trainer/supervisor/oom.h"

namespace starling::supervisor {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kAliveCheck{500};
constexpr int kCannotStart = 127;  // as shells say it
constexpr std::size_t kTerminationLogBytes = 4096;

std::string OwnFolder() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return {};
  const std::string text(path.data(), static_cast<std::size_t>(length));
  return text.substr(0, text.rfind('/'));
}

bool IsExecutable(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

// The folder for our own small files: the exit record's, else a new one in /tmp.
std::string WorkFolder(const Options& options) {
  if (!options.exit_records.empty()) {
    const std::string& record = options.exit_records.front();
    const auto slash = record.rfind('/');
    return slash == std::string::npos ? "." : record.substr(0, slash);
  }
  std::string name = "/tmp/starling-pod-XXXXXX";
  return mkdtemp(name.data()) == nullptr ? "/tmp" : name;
}

std::string ReadSmall(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return text;
}

void WriteLog(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a full disk must not stop the role
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// The children of this process, whoever started them.
std::vector<pid_t> Children() {
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  return {std::istream_iterator<pid_t>(file), std::istream_iterator<pid_t>()};
}

}  // namespace

std::string FindProgram(const std::string& role, const std::string& own_folder,
                        const std::vector<std::string>& environment) {
  if (role.find('/') != std::string::npos) return role;
  if (std::string beside = own_folder + "/" + role; IsExecutable(beside)) return beside;
  for (const std::string& entry : environment) {
    if (!entry.starts_with("PATH=")) continue;
    std::istringstream folders(entry.substr(5));
    for (std::string folder; std::getline(folders, folder, ':');) {
      if (IsExecutable(folder.append("/").append(role))) return folder;
    }
  }
  return {};
}

Supervisor::Supervisor(Options options, std::vector<std::string> environment)
    : options_(std::move(options)),
      environment_(std::move(environment)),
      program_(FindProgram(options_.role.front(), OwnFolder(), environment_)),
      folder_(WorkFolder(options_)),
      progress_file_(options_.progress_file.empty() ? folder_ + "/progress"
                                                    : options_.progress_file),
      oom_counter_file_(ResolveOomCounter(options_.oom_counter)),
      alive_(options_.alive_fifo) {}

Supervisor::~Supervisor() {
  if (signals_ >= 0) close(signals_);
  if (output_ >= 0) close(output_);
}

int Supervisor::Run() {
  if (!OpenSignals()) return Finish({.code = 1}, "StartError", "cannot receive signals");
  last_progress_ = ReadSmall(progress_file_);
  oom_count_ = ReadOomCounter(oom_counter_file_);
  alive_.Check(steady_clock::now());
  if (!StartRole()) return exit_code_;
  for (;;) {
    WaitForSomething();
    ReadSignals();
    ReadOutput();
    CheckAlive();
    if (const auto status = ReapAll(); status && !HandleEnd(*status)) return exit_code_;
  }
}

bool Supervisor::OpenSignals() {
  // What the role leaves behind becomes our child and is reaped, also where we are not process 1.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    sigaddset(&set, signal);
  }
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  return signals_ >= 0;
}

std::vector<std::string> Supervisor::RoleEnvironment() const {
  std::vector<std::string> environment;
  for (const std::string& entry : environment_) {
    const bool ours = entry.starts_with("STARLING_POD_START=") ||
                      entry.starts_with("STARLING_LAST_EXIT=") ||
                      entry.starts_with("STARLING_PROGRESS_FILE=");
    if (!ours) environment.push_back(entry);
  }
  environment.push_back("STARLING_POD_START=" + std::to_string(starts_));
  environment.push_back("STARLING_PROGRESS_FILE=" + progress_file_);
  if (!last_exit_file_.empty()) environment.push_back("STARLING_LAST_EXIT=" + last_exit_file_);
  return environment;
}

bool Supervisor::StartRole() {
  ++starts_;
  started_at_nanos_ = UnixNanosNow();
  int ends[2] = {-1, -1};
  int error = pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 ? 0 : errno;
  if (error == 0) {
    fcntl(ends[1], F_SETFL, 0);  // the role writes as to a file
    process::LaunchPlan plan;
    plan.program = program_.empty() ? options_.role.front() : program_;
    plan.arguments.assign(options_.role.begin() + 1, options_.role.end());
    plan.environment = RoleEnvironment();
    plan.standard_output = ends[1];
    plan.standard_error = ends[1];
    plan.own_process_group = false;  // the pod is one group, which the kubelet can kill
    plan.parent_death_signal = SIGKILL;
    error = program_.empty() ? ENOENT : process::Launch(plan, role_);
    close(ends[1]);
    output_ = ends[0];
  }
  if (error == 0) return true;
  role_ = 0;
  const std::string message = "cannot start " + options_.role.front() + ": " + std::strerror(error);
  WriteLog("starling-supervisor: " + message + "\n");
  exit_code_ = Finish({.code = kCannotStart}, "StartError", message);
  return false;
}

int Supervisor::PollTimeout() const {
  auto timeout = milliseconds::max();
  if (alive_.lonely()) timeout = kAliveCheck;
  if (alive_.lonely() && !orphaned_) timeout = std::min(timeout, options_.alive_timeout);
  if (kill_at_ != steady_clock::time_point::max()) {
    timeout = std::min(
        timeout, duration_cast<milliseconds>(kill_at_ - steady_clock::now()) + milliseconds(1));
  }
  if (timeout == milliseconds::max()) return -1;
  return static_cast<int>(std::max<milliseconds::rep>(timeout.count(), 0));
}

void Supervisor::WaitForSomething() {
  std::array<pollfd, 3> descriptors = {{
      {.fd = signals_, .events = POLLIN, .revents = 0},
      {.fd = output_, .events = POLLIN, .revents = 0},
      {.fd = alive_.descriptor(), .events = 0, .revents = 0},  // hang-ups only
  }};
  poll(descriptors.data(), descriptors.size(), PollTimeout());
}

void Supervisor::ReadSignals() {
  signalfd_siginfo info{};
  while (read(signals_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGCHLD) ForwardSignal(signal);
  }
}

void Supervisor::ForwardSignal(int signal) {
  if (signal == SIGTERM || signal == SIGINT) stopping_ = true;
  // The role has not been reaped, so the pid is its own.
  if (role_ > 0) kill(role_, signal == SIGINT ? SIGTERM : signal);
}

void Supervisor::ReadOutput() {
  if (output_ < 0) return;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = read(output_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return;  // nothing more for now
    if (got == 0) break;  // no writer is left
    const std::string_view text(buffer.data(), static_cast<std::size_t>(got));
    tail_.Append(text);
    // Before the text, not after it: the last lines stand in the newest file whatever its length.
    if (options_.log_limit > 0 && logged_ > options_.log_limit) RotateLog();
    WriteLog(text);
    logged_ += got;
  }
  close(output_);
  output_ = -1;
}

// Output that is a file goes on in a new one; the old one, of which one is kept, gets the ending
// .1.
void Supervisor::RotateLog() {
  logged_ = 0;
  struct stat info {};
  if (fstat(STDOUT_FILENO, &info) != 0 || !S_ISREG(info.st_mode)) return;
  std::array<char, PATH_MAX> buffer{};
  const ssize_t length = readlink("/proc/self/fd/1", buffer.data(), buffer.size() - 1);
  if (length <= 0) return;
  const std::string path(buffer.data(), static_cast<std::size_t>(length));
  if (rename(path.c_str(), (path + ".1").c_str()) != 0) return;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  close(file);
}

void Supervisor::CheckAlive() {
  if (!alive_.watched()) return;
  const auto now = steady_clock::now();
  alive_.Check(now);
  if (!orphaned_ && alive_.lonely() && now - alive_.lonely_since() >= options_.alive_timeout) {
    orphaned_ = true;
    WriteLog("starling-supervisor: nobody holds " + options_.alive_fifo +
             " open any more; the role saves its work and ends\n");
    ForwardSignal(SIGTERM);
    kill_at_ = now + options_.grace;
  }
  if (now >= kill_at_ && role_ > 0) {
    kill(role_, SIGKILL);
    kill_at_ = steady_clock::time_point::max();
  }
}

std::optional<process::ExitStatus> Supervisor::ReapAll() {
  std::optional<process::ExitStatus> ended;
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid != role_) continue;
    ended = process::DecodeWaitStatus(status);
    role_ = 0;
  }
  return ended;
}

// What the role has started and not ended must not meet its successor.
void Supervisor::KillLeftovers() {
  for (std::vector<pid_t> children = Children(); !children.empty(); children = Children()) {
    for (const pid_t child : children) kill(child, SIGKILL);
    for (const pid_t child : children) waitpid(child, nullptr, 0);
  }
}

bool Supervisor::TakeOutOfMemory(const process::ExitStatus& status) {
  const auto before = std::exchange(oom_count_, ReadOomCounter(oom_counter_file_));
  return status.signal == SIGKILL && before && oom_count_ && *oom_count_ > *before;
}

void Supervisor::ResetRestartsOnProgress() {
  const std::string progress = ReadSmall(progress_file_);
  if (progress == last_progress_) return;
  last_progress_ = progress;
  restarts_without_progress_ = 0;
}

bool Supervisor::HandleEnd(const process::ExitStatus& status) {
  KillLeftovers();
  ReadOutput();
  if (output_ >= 0) close(std::exchange(output_, -1));
  ResetRestartsOnProgress();
  const Verdict verdict = Decide(options_.restart_policy, options_.max_restarts,
                                 {.status = status,
                                  .out_of_memory = TakeOutOfMemory(status),
                                  .restarts_without_progress = restarts_without_progress_,
                                  .stopping = stopping_});
  if (!verdict.restart) {
    exit_code_ = Finish(status, orphaned_ ? "Orphaned" : verdict.reason, tail_.Text());
    return false;
  }
  ++restarts_without_progress_;
  last_exit_file_ = folder_ + "/last-exit.json";
  const std::string last_exit = LastExitJson(status, tail_.Text(), UnixNanosNow());
  if (!WriteFileAtomically(last_exit_file_, last_exit, /*sync=*/false)) last_exit_file_.clear();
  tail_.Clear();
  if (!StartRole()) return false;
  WriteLog("starling-supervisor: the role ended with " + process::Describe(status) +
           " and was started again\n");
  return true;
}

int Supervisor::Finish(const process::ExitStatus& status, const std::string& reason,
                       const std::string& message) {
  ExitRecord record;
  record.exit_code = status.ShellCode();
  record.signal = status.signal;
  record.reason = reason;
  record.message = message;
  record.started_at_nanos = started_at_nanos_;
  record.finished_at_nanos = UnixNanosNow();
  record.restarts = std::max(0, starts_ - 1);
  for (const std::string& path : options_.exit_records) {
    if (!WriteFileAtomically(path, ToJson(record), /*sync=*/true)) {
      WriteLog("starling-supervisor: cannot write the exit record " + path + "\n");
    }
  }
  if (!options_.termination_log.empty()) {
    // A container's termination log is a mounted file: it can be written, not replaced.
    std::ofstream file(options_.termination_log);
    file << ToShortJson(record, kTerminationLogBytes);
  }
  return record.exit_code;
}

}  // namespace starling::supervisor
