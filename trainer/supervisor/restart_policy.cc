// SPDX-License-Identifier: Apache-2.0
#include "trainer/supervisor/restart_policy.h"

namespace starling::supervisor {
namespace {

bool Restartable(RestartPolicy policy, const process::ExitStatus& status) {
  if (status.signal == 0 && status.code == kBadInput) return false;
  switch (policy) {
    case RestartPolicy::kOnFailure:
      return true;
    case RestartPolicy::kExitCode:
      return status.ShellCode() >= 128;
    case RestartPolicy::kNever:
      return false;
  }
  return false;
}

}  // namespace

Verdict Decide(RestartPolicy policy, int max_restarts, const RoleEnd& end) {
  if (end.out_of_memory) return {.restart = false, .reason = "OOMKilled"};
  if (end.status.Succeeded()) return {.restart = false, .reason = "Completed"};
  const bool restart = !end.stopping && Restartable(policy, end.status) &&
                       end.restarts_without_progress < max_restarts;
  return {.restart = restart, .reason = "Error"};
}

}  // namespace starling::supervisor
