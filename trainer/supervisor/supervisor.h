// SPDX-License-Identifier: Apache-2.0
// The first process of every pod: starts the role, restarts it in place, tells how it ended.
//
// It has no threads, no network and no libraries, so that little can go wrong with it; the role
// dies with it (PR_SET_PDEATHSIG), so that killing the pod's first process kills the pod. A restart
// costs one fork and exec. The role gets
//   STARLING_POD_START      1 for the first start in this pod, then 2, ...
//   STARLING_LAST_EXIT      a JSON file {exitCode, signal, logTail, unixNanos}, unless it is the
//   first STARLING_PROGRESS_FILE  where it writes the newest settled step as text; a new one there
//   makes
//                           the count of restarts start over
// Its output passes through a pipe into ours: the log, of which the last lines are kept.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/process/alive_fifo.h"
#include "common/process/exit_status.h"
#include "trainer/supervisor/log_tail.h"
#include "trainer/supervisor/options.h"
#include "trainer/supervisor/records.h"

namespace starling::supervisor {

// Confined to the main thread of a process that has no other: it uses SIGCHLD and waits for any
// child.
class Supervisor {
 public:
  // `environment` (NAME=value) is the role's, with the above added.
  Supervisor(Options options, std::vector<std::string> environment);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Returns the code to exit with once the role has ended for good and the records are written.
  int Run();

 private:
  bool OpenSignals();
  bool StartRole();
  std::vector<std::string> RoleEnvironment() const;
  int PollTimeout() const;
  void WaitForSomething();
  void ReadSignals();
  void ForwardSignal(int signal);
  void ReadOutput();
  void RotateLog();
  void CheckAlive();
  // How the role ended, once all that has ended was reaped; nothing while it runs.
  std::optional<process::ExitStatus> ReapAll();
  void KillLeftovers();
  bool TakeOutOfMemory(const process::ExitStatus& status);
  void ResetRestartsOnProgress();
  // Whether the role runs again.
  bool HandleEnd(const process::ExitStatus& status);
  int Finish(const process::ExitStatus& status, const std::string& reason,
             const std::string& message);

  const Options options_;
  const std::vector<std::string> environment_;
  const std::string program_;
  std::string folder_;  // of progress and last exit
  std::string progress_file_;
  std::string oom_counter_file_;
  process::AliveWatch alive_;
  LogTail tail_;
  int signals_ = -1;
  int output_ = -1;  // the read end of the role's output
  pid_t role_ = 0;   // 0: none runs
  int starts_ = 0;
  int restarts_without_progress_ = 0;
  std::string last_progress_;
  std::string last_exit_file_;  // empty before the first end
  std::optional<long long> oom_count_;
  std::int64_t started_at_nanos_ = 0;
  long long logged_ = 0;
  bool stopping_ = false;
  bool orphaned_ = false;
  // When the role is killed if it has not ended by itself; max(): it is not asked to end.
  std::chrono::steady_clock::time_point kill_at_ = std::chrono::steady_clock::time_point::max();
  int exit_code_ = 0;
};

// Where `role` lies: as it is if it holds a slash, else in `own_folder`, else in PATH of
// `environment`; empty if nowhere.
std::string FindProgram(const std::string& role, const std::string& own_folder,
                        const std::vector<std::string>& environment);

}  // namespace starling::supervisor
