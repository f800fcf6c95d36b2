// SPDX-License-Identifier: Apache-2.0
// How a process ended: with a code, or by a signal.
//
// Standard library only, so that the static supervisor can use it too.
#pragma once

#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <string>

namespace starling::process {

struct ExitStatus {
  int code = 0;    // what the process passed to exit; 0 when a signal ended it
  int signal = 0;  // the signal that ended it; 0 when it exited

  // As shells and container runtimes count: 128 + signal.
  int ShellCode() const { return signal != 0 ? 128 + signal : code; }
  bool Succeeded() const { return signal == 0 && code == 0; }
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

// `status` as waitpid writes it.
inline ExitStatus DecodeWaitStatus(int status) {
  if (WIFSIGNALED(status)) return {.code = 0, .signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status), .signal = 0};
}

// `info` as waitid writes it.
inline ExitStatus DecodeSignalInfo(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {.code = info.si_status, .signal = 0};
  return {.code = 0, .signal = info.si_status};
}

// "exit code 1" or "signal 9 (SIGKILL)".
inline std::string Describe(const ExitStatus& status) {
  if (status.signal == 0) return "exit code " + std::to_string(status.code);
  const char* name = sigabbrev_np(status.signal);
  return "signal " + std::to_string(status.signal) +
         (name == nullptr ? std::string() : std::string(" (SIG") + name + ")");
}

}  // namespace starling::process
