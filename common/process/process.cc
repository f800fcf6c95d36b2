// SPDX-License-Identifier: Apache-2.0
#include "common/process/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/status/macros.h"

namespace starling::process {
namespace {

// pidfd_* have no wrappers that every C library of ours declares.
int OpenPidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// A process that executes another program has for an instant no environment that could be read:
// whoever looked then would take a pod's process for a stranger's.
constexpr int kExecTries = 50;
constexpr absl::Duration kExecWait = absl::Milliseconds(1);

// Threads of the kernel have none, and never an environment.
bool HasProgram(pid_t pid) {
  char target = 0;
  return readlink(absl::StrCat("/proc/", pid, "/exe").c_str(), &target, 1) > 0;
}

int Milliseconds(absl::Duration timeout) {
  const auto whole = absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)));
  return static_cast<int>(std::clamp<std::int64_t>(whole, 0, std::numeric_limits<int>::max()));
}

}  // namespace

absl::StatusOr<ProcessStat> ParseStat(std::string_view text) {
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  ProcessStat stat;
  if (open == text.npos || close == text.npos || close + 2 >= text.size()) {
    return absl::InvalidArgumentError("a process's stat line has no name in brackets");
  }
  const std::string head(text.substr(0, open));
  const std::string rest(text.substr(close + 2));
  const std::vector<std::string> fields = absl::StrSplit(rest, ' ');
  constexpr std::size_t kStartTime = 19;  // field 22 of the line, counted from the third
  if (fields.size() <= kStartTime || fields[0].size() != 1 ||
      !absl::SimpleAtoi(head, &stat.identity.pid) || !absl::SimpleAtoi(fields[1], &stat.parent) ||
      !absl::SimpleAtoi(fields[2], &stat.group) ||
      !absl::SimpleAtoi(fields[kStartTime], &stat.identity.start_time)) {
    return absl::InvalidArgumentError("a process's stat line is not as proc(5) describes it");
  }
  stat.state = fields[0][0];
  return stat;
}

absl::StatusOr<ProcessStat> ReadStat(pid_t pid) {
  const std::string text = ReadWhole(absl::StrCat("/proc/", pid, "/stat"));
  if (text.empty()) return absl::NotFoundError(absl::StrCat("no process has the pid ", pid));
  return ParseStat(text);
}

std::vector<pid_t> ListProcesses() {
  std::vector<pid_t> pids;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return pids;
  while (const dirent* entry = readdir(folder)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid)) pids.push_back(pid);
  }
  closedir(folder);
  return pids;
}

std::vector<std::string> ReadEnvironment(pid_t pid) {
  std::string text;
  for (int tries = 0; tries < kExecTries; ++tries) {
    text = ReadWhole(absl::StrCat("/proc/", pid, "/environ"));
    if (!text.empty() || !HasProgram(pid)) break;
    absl::SleepFor(kExecWait);
  }
  return absl::StrSplit(text, '\0', absl::SkipEmpty());
}

std::string BootId() {
  return std::string(absl::StripAsciiWhitespace(ReadWhole("/proc/sys/kernel/random/boot_id")));
}

Process::~Process() {
  if (descriptor_ >= 0) close(descriptor_);
}

Process::Process(Process&& other) noexcept
    : identity_(other.identity_), descriptor_(std::exchange(other.descriptor_, -1)) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(identity_, other.identity_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

absl::StatusOr<Process> Process::Adopt(const ProcessIdentity& identity) {
  const int descriptor = OpenPidfd(identity.pid);
  if (descriptor < 0) {
    return absl::NotFoundError(absl::StrCat("process ", identity.pid, " has ended"));
  }
  // The pidfd holds whoever had the pid a moment ago; only now does comparing settle who that is.
  Process process(identity, descriptor);
  ASSIGN_OR_RETURN(const ProcessStat stat, ReadStat(identity.pid));
  if (stat.identity.start_time != identity.start_time) {
    return absl::NotFoundError(
        absl::StrCat("process ", identity.pid, " has ended; its pid belongs to another"));
  }
  if (stat.Ended()) {
    return absl::NotFoundError(absl::StrCat("process ", identity.pid, " has ended"));
  }
  return process;
}

absl::Status Process::Signal(int signal) const {
  if (syscall(SYS_pidfd_send_signal, descriptor_, signal, nullptr, 0) == 0) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot signal process ", identity_.pid));
}

absl::Status Process::SignalGroup(int signal) const {
  // The number is safe only while the leader exists, running or as our zombie.
  const auto stat = ReadStat(identity_.pid);
  if (!stat.ok()) return stat.status();
  if (stat->identity != identity_ || stat->group != identity_.pid) {
    return absl::NotFoundError(
        absl::StrCat("process ", identity_.pid, " leads no process group any more"));
  }
  if (killpg(identity_.pid, signal) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot signal process group ", identity_.pid));
}

bool Process::WaitForEnd(absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  pollfd poll_descriptor{.fd = descriptor_, .events = POLLIN, .revents = 0};
  for (;;) {
    const int ready = poll(&poll_descriptor, 1, Milliseconds(deadline - absl::Now()));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return false;
  }
}

absl::StatusOr<ExitStatus> Process::Reap() {
  siginfo_t info{};
  const int result = waitid(P_PIDFD, static_cast<id_t>(descriptor_), &info, WEXITED | WNOHANG);
  if (result != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", identity_.pid, " is not a child that could be reaped"));
  }
  if (info.si_pid == 0) {
    return absl::UnavailableError(absl::StrCat("process ", identity_.pid, " still runs"));
  }
  return DecodeSignalInfo(info);
}

absl::StatusOr<Process> Start(const LaunchPlan& plan) {
  pid_t pid = 0;
  if (const int error = Launch(plan, pid); error != 0) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", plan.program));
  }
  // A child of ours that nobody else reaps: the pid is its own until Reap().
  const int descriptor = OpenPidfd(pid);
  const int error = errno;
  const auto stat = ReadStat(pid);
  if (descriptor >= 0 && stat.ok()) return Process(stat->identity, descriptor);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  if (descriptor >= 0) close(descriptor);
  return descriptor < 0 ? absl::ErrnoToStatus(error, "cannot open a pidfd") : stat.status();
}

std::string OwnProgramFolder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0) return {};
  const std::string text(path, static_cast<std::size_t>(length));
  return text.substr(0, text.rfind('/'));
}

}  // namespace starling::process
