// SPDX-License-Identifier: Apache-2.0
#include "common/process/launch.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "common/process/blocked_signals.h"

namespace starling::process {
namespace {

constexpr int kFirstSignal = 1;
constexpr int kLastSignal = 64;

std::vector<char*> Pointers(const std::vector<std::string>& texts, const std::string* first) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 2);
  if (first != nullptr) pointers.push_back(const_cast<char*>(first->c_str()));
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

int AddDescriptor(posix_spawn_file_actions_t& actions, int source, int target, int flags) {
  if (source < 0) return posix_spawn_file_actions_addopen(&actions, target, "/dev/null", flags, 0);
  return posix_spawn_file_actions_adddup2(&actions, source, target);
}

int FillActions(const LaunchPlan& plan, posix_spawn_file_actions_t& actions) {
  int error = AddDescriptor(actions, plan.standard_input, 0, O_RDONLY);
  if (error == 0) error = AddDescriptor(actions, plan.standard_output, 1, O_WRONLY);
  if (error == 0) error = AddDescriptor(actions, plan.standard_error, 2, O_WRONLY);
  if (error == 0) error = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  if (error == 0 && !plan.working_directory.empty()) {
    error = posix_spawn_file_actions_addchdir_np(&actions, plan.working_directory.c_str());
  }
  return error;
}

int FillAttributes(const LaunchPlan& plan, posix_spawnattr_t& attributes) {
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (plan.own_session) {
    flags |= POSIX_SPAWN_SETSID;
  } else if (plan.own_process_group) {
    flags |= POSIX_SPAWN_SETPGROUP;
  }
  int error = posix_spawnattr_setflags(&attributes, flags);
  if (error == 0) error = posix_spawnattr_setsigmask(&attributes, &none);
  if (error == 0) error = posix_spawnattr_setsigdefault(&attributes, &all);
  if (error == 0) error = posix_spawnattr_setpgroup(&attributes, 0);
  return error;
}

int Spawn(const LaunchPlan& plan, char* const* arguments, char* const* environment, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (const int error = posix_spawn_file_actions_init(&actions); error != 0) return error;
  if (const int error = posix_spawnattr_init(&attributes); error != 0) {
    posix_spawn_file_actions_destroy(&actions);
    return error;
  }
  int error = FillActions(plan, actions);
  if (error == 0) error = FillAttributes(plan, attributes);
  if (error == 0) {
    error = posix_spawn(&pid, plan.program.c_str(), &actions, &attributes, arguments, environment);
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Between fork and exec only async-signal-safe calls: other threads of the parent may have held
// any lock. Moves the three descriptors away from 0 to 2 first, since one may stand in another's
// place.
int PrepareChild(const LaunchPlan& plan, pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, plan.parent_death_signal) != 0) return errno;
  if (getppid() != parent) _exit(128 + SIGKILL);  // it ended before the line above
  if (plan.own_session && setsid() < 0) return errno;
  if (plan.own_process_group && !plan.own_session && setpgid(0, 0) != 0) return errno;
  const int sources[3] = {plan.standard_input, plan.standard_output, plan.standard_error};
  int moved[3];
  for (int i = 0; i < 3; ++i) {
    moved[i] = sources[i] < 0 ? open("/dev/null", (i == 0 ? O_RDONLY : O_WRONLY) | O_CLOEXEC)
                              : fcntl(sources[i], F_DUPFD_CLOEXEC, 3);
    if (moved[i] < 0) return errno;
  }
  for (int i = 0; i < 3; ++i) {
    if (dup2(moved[i], i) < 0) return errno;
  }
  if (!plan.working_directory.empty() && chdir(plan.working_directory.c_str()) != 0) return errno;
  for (int signal = kFirstSignal; signal <= kLastSignal; ++signal) {
    if (signal != SIGKILL && signal != SIGSTOP) std::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  return sigprocmask(SIG_SETMASK, &none, nullptr) == 0 ? 0 : errno;
}

[[noreturn]] void RunChild(const LaunchPlan& plan, char* const* arguments, char* const* environment,
                           pid_t parent, int report) {
  int error = PrepareChild(plan, parent);
  if (error == 0) {
    // All descriptors above 2 close on exec, the error pipe too: if it ends empty, exec succeeded.
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    execve(plan.program.c_str(), arguments, environment);
    error = errno;
  }
  [[maybe_unused]] const ssize_t written = write(report, &error, sizeof(error));
  _exit(127);
}

int Fork(const LaunchPlan& plan, char* const* arguments, char* const* environment, pid_t& pid) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return errno;
  const pid_t parent = getpid();
  int error = 0;
  {
    const BlockedSignals blocked;
    pid = fork();
    if (pid < 0) error = errno;
    if (pid == 0) RunChild(plan, arguments, environment, parent, report[1]);
  }
  close(report[1]);
  if (pid > 0) {
    ssize_t got;
    do {
      got = read(report[0], &error, sizeof(error));
    } while (got < 0 && errno == EINTR);
    if (got != static_cast<ssize_t>(sizeof(error))) error = 0;
    if (error != 0) waitpid(pid, nullptr, 0);
  }
  close(report[0]);
  return error;
}

}  // namespace

int Launch(const LaunchPlan& plan, pid_t& pid) {
  const std::vector<char*> arguments = Pointers(plan.arguments, &plan.program);
  const std::vector<char*> environment = Pointers(plan.environment, nullptr);
  return plan.parent_death_signal == 0 ? Spawn(plan, arguments.data(), environment.data(), pid)
                                       : Fork(plan, arguments.data(), environment.data(), pid);
}

}  // namespace starling::process
