// SPDX-License-Identifier: Apache-2.0
// Processes that we start, find again, signal and wait for, without ever mistaking one for another.
//
// A pid is only a number that the system uses again. A ProcessIdentity (pid and start time) names
// one process for good, even for a successor of ours that reads it from a file; a Process holds a
// pidfd, through which a signal reaches that process or nobody. Children are started by Start();
// others are taken over by Process::Adopt().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/exit_status.h"
#include "common/process/launch.h"

namespace starling::process {

struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since the machine started, /proc/<pid>/stat field 22

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// What /proc/<pid>/stat says.
struct ProcessStat {
  ProcessIdentity identity;
  char state = '?';  // 'Z' and 'X' have ended
  pid_t parent = 0;
  pid_t group = 0;

  bool Ended() const { return state == 'Z' || state == 'X'; }
};

// NotFound when there is no such process.
absl::StatusOr<ProcessStat> ReadStat(pid_t pid);

// The text after the pid and name of a stat line is fixed; the name may hold anything.
absl::StatusOr<ProcessStat> ParseStat(std::string_view text);

// Every process that the system shows now.
std::vector<pid_t> ListProcesses();

// The environment that a process was started with; empty when it may not be read or is gone. Of one
// that has none it is said after 50 ms.
std::vector<std::string> ReadEnvironment(pid_t pid);

// The machine's boot: start times of different boots must not be compared. Empty if unknown.
std::string BootId();

// One running or ended process. Movable. Thread-compatible.
class Process {
 public:
  Process() = default;
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;

  // Takes over a process that somebody else started. NotFound when it has ended (a zombie has) or
  // when its pid now belongs to another.
  static absl::StatusOr<Process> Adopt(const ProcessIdentity& identity);

  bool valid() const { return descriptor_ >= 0; }
  const ProcessIdentity& identity() const { return identity_; }
  pid_t pid() const { return identity_.pid; }
  int descriptor() const { return descriptor_; }  // readable once the process has ended

  // NotFound when it has ended and was reaped.
  absl::Status Signal(int signal) const;

  // Signals the process group of which this process is the leader, while its pid still protects the
  // group's number: it runs, or is a child of ours that is not reaped yet. NotFound when empty.
  absl::Status SignalGroup(int signal) const;

  // Whether it has ended; waits for that at most `timeout`.
  bool WaitForEnd(absl::Duration timeout) const;

  // How a child of ours ended; reaps it. Unavailable while it runs, FailedPrecondition when it is
  // not our child.
  absl::StatusOr<ExitStatus> Reap();

 private:
  friend absl::StatusOr<Process> Start(const LaunchPlan& plan);
  Process(ProcessIdentity identity, int descriptor)
      : identity_(identity), descriptor_(descriptor) {}

  ProcessIdentity identity_;
  int descriptor_ = -1;
};

// NotFound or PermissionDenied when the program is missing or cannot be executed.
absl::StatusOr<Process> Start(const LaunchPlan& plan);

// The folder of the running program's own file: where its sister programs lie.
std::string OwnProgramFolder();

}  // namespace starling::process
