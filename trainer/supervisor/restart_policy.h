// SPDX-License-Identifier: Apache-2.0
// Whether a role that has ended is started again in the same pod: a pure decision.
#pragma once

#include <string>

#include "common/process/exit_status.h"

namespace starling::supervisor {

enum class RestartPolicy {
  kOnFailure,  // whatever failed
  kExitCode,   // 128 and above, and signals; 1 to 127 fail the job
  kNever,
};

// "Exit code 2: the job or its data is wrong". Nothing that we could repeat would heal it.
inline constexpr int kBadInput = 2;

struct RoleEnd {
  process::ExitStatus status;
  bool out_of_memory = false;
  int restarts_without_progress = 0;  // since a step was last settled
  bool stopping = false;              // we were told to end
};

struct Verdict {
  bool restart = false;
  std::string reason;  // in the manner of container states: Completed, Error, OOMKilled
};

Verdict Decide(RestartPolicy policy, int max_restarts, const RoleEnd& end);

}  // namespace starling::supervisor
