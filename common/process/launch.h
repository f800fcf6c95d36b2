// SPDX-License-Identifier: Apache-2.0
// Starts a program as a child with nothing of the parent's but what the plan says: no descriptors
// beyond 0 to 2, default signal handlers, an empty signal mask, an exact environment.
//
// POSIX only, no Abseil: the static supervisor links this file. Everything else uses Start()
// of process.h.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace starling::process {

struct LaunchPlan {
  std::string program = {};                   // a path; not searched in PATH
  std::vector<std::string> arguments = {};    // without the program's own name
  std::vector<std::string> environment = {};  // NAME=value
  std::string working_directory = {};         // empty: the parent's
  int standard_input = -1;                    // descriptors of the parent; -1: /dev/null
  int standard_output = -1;
  int standard_error = -1;
  bool own_process_group = true;
  bool own_session = false;  // and so a group of its own, and no terminal

  // Not 0: the child gets this signal when the *thread* that launched it ends, so that it cannot
  // outlive us. Launch from a thread that lives as long as the process.
  int parent_death_signal = 0;
};

// Returns 0 and sets `pid`, or the errno of the step that failed; a program that cannot be executed
// is reported here, not as an exit code.
int Launch(const LaunchPlan& plan, pid_t& pid);

}  // namespace starling::process
