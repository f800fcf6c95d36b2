// SPDX-License-Identifier: Apache-2.0
// The supervisor's command line: starling-supervisor [flags] -- role [arguments of the role].
//
// To add a flag: a member here, a row in the table of options.cc.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "trainer/supervisor/restart_policy.h"

namespace starling::supervisor {

struct Options {
  std::string alive_fifo;                 // empty: nobody needs to hold one open
  std::vector<std::string> exit_records;  // where the pod's end is written, each atomically
  std::string termination_log;            // empty: none; /dev/termination-log in a cluster
  std::string progress_file;              // empty: beside the exit record
  std::string job_folder;                 // the role is told of it, and it is made; empty: none
  std::vector<std::string> variables;     // NAME=value, for a role whose environment lacks NAME
  std::string oom_counter = "auto";       // "auto", "none", or a cgroup file with an oom_kill line
  RestartPolicy restart_policy = RestartPolicy::kOnFailure;
  int max_restarts = 3;
  std::chrono::milliseconds grace{30'000};          // of the role, when the supervisor ends it
  std::chrono::milliseconds alive_timeout{10'000};  // without a writer of the FIFO
  long long log_limit = 64LL << 20;                 // bytes of the log before it is rotated
  std::vector<std::string> role;                    // program and arguments
};

// `arguments` without the program's name. STARLING_EXIT_RECORD and STARLING_ALIVE_FIFO of
// `environment` (NAME=value) stand in for the flags or, for the exit record, beside it. Returns
// what is wrong, empty if nothing is.
std::string ParseOptions(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment, Options& options);

// Gives the role what the flags say beside what the pod says, which wins: the variables, and the
// job's folder as STARLING_JOB_DIR.
void AddVariables(const Options& options, std::vector<std::string>& environment);

}  // namespace starling::supervisor
