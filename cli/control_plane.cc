// SPDX-License-Identifier: Apache-2.0
#include "cli/control_plane.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/macros.h"

namespace starling::cli {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(100);
constexpr absl::Duration kQuickEnd = absl::Seconds(2);
constexpr int kMostQuickEnds = 5;

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

// For file systems whose inode numbers /proc/locks does not tell: tries to share the lock.
bool IsLocked(const std::string& lock_file) {
  const int file = ::open(lock_file.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool locked = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return locked;
}

}  // namespace

std::optional<pid_t> ParseLockHolder(std::string_view locks, std::uint64_t inode) {
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(locks.data(), locks.size()), '\n')) {
    // 1: FLOCK  ADVISORY  WRITE 4242 08:01:1234567 0 EOF
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 6 || words[1] != "FLOCK") continue;
    const std::vector<std::string> place = absl::StrSplit(words[5], ':');
    std::uint64_t number = 0;
    pid_t pid = 0;
    if (absl::SimpleAtoi(place.back(), &number) && number == inode &&
        absl::SimpleAtoi(words[4], &pid)) {
      return pid;
    }
  }
  return std::nullopt;
}

std::optional<pid_t> LockHolder(const std::string& lock_file) {
  struct stat status {};
  if (::stat(lock_file.c_str(), &status) != 0) return std::nullopt;
  std::ifstream file("/proc/locks");
  std::stringstream locks;
  locks << file.rdbuf();
  return ParseLockHolder(locks.str(), status.st_ino);
}

bool ControllerRuns(const Home& home) {
  const std::string lock = home.ControllerLock();
  return LockHolder(lock).has_value() || IsLocked(lock);
}

absl::StatusOr<process::Process> StartController(const Session& session, bool stay) {
  RETURN_IF_ERROR(session.home().Create());
  const int log = ::open(session.home().ControllerLog().c_str(),
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(session.home().ControllerLog(), ": ", std::strerror(errno)));
  }
  process::LaunchPlan plan;
  plan.program = session.program_folder() + "/starling-controller";
  plan.arguments = {"--home", session.home().path()};
  if (!stay) plan.arguments.emplace_back("--exit-when-idle");
  plan.environment = OwnEnvironment();
  plan.working_directory = session.home().path();
  plan.standard_output = log;
  plan.standard_error = log;
  plan.own_session = true;
  auto started = process::Start(plan);
  ::close(log);
  if (started.ok()) return started;
  return absl::UnavailableError(
      absl::StrCat("the controller cannot be started: ", std::string(started.status().message()),
                   "; it must lie beside this program"));
}

absl::Status ControllerKeeper::Tend() {
  if (session_.remote()) return absl::OkStatus();  // its own keepers tend it
  const absl::Time now = session_.clock().Now();
  if (child_.valid()) {
    if (!child_.WaitForEnd(absl::ZeroDuration())) return absl::OkStatus();
    child_.Reap().IgnoreError();
    child_ = process::Process();
    quick_ends_ = now - started_ < kQuickEnd ? quick_ends_ + 1 : 0;
    next_look_ = now + kLookEvery * quick_ends_;
  }
  if (now < next_look_) return absl::OkStatus();
  next_look_ = now + kLookEvery;
  if (ControllerRuns(session_.home())) {
    seen_ = true;
    quick_ends_ = 0;
    return absl::OkStatus();
  }
  if (quick_ends_ >= kMostQuickEnds) {
    return absl::UnavailableError(absl::StrCat(
        "the controller ends as soon as it is started; the end of ",
        session_.home().ControllerLog(), ":\n", LastLines(session_.home().ControllerLog(), 5)));
  }
  ASSIGN_OR_RETURN(child_, StartController(session_, /*stay=*/false));
  started_ = now;
  restarted_ = restarted_ || seen_;
  seen_ = true;
  return absl::OkStatus();
}

std::string LastLines(const std::string& path, int lines) {
  std::ifstream file(path);
  std::deque<std::string> last;
  for (std::string line; std::getline(file, line);) {
    last.push_back(std::move(line));
    if (static_cast<int>(last.size()) > lines) last.pop_front();
  }
  std::string text;
  for (const std::string& line : last) absl::StrAppend(&text, line, "\n");
  return text;
}

}  // namespace starling::cli
