// SPDX-License-Identifier: Apache-2.0
#include "common/process/memory_keeper.h"

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "common/process/blocked_signals.h"

namespace starling::process {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr bool kPossible = false;  // the sanitizer's runtime knows of no such process
#else
constexpr bool kPossible = true;
#endif

alignas(64) std::array<std::byte, 16 << 10> stack;
int parent = -1;  // a descriptor of the parent, which the keeper inherits

// Runs in the keeper, on the parent's memory and with the thread-local variables of the thread that
// started it: system calls that succeed, and nothing of the standard library.
[[gnu::no_sanitize("address"), gnu::no_sanitize("undefined")]] int Keep(void* /*nothing*/) {
  syscall(SYS_prctl, PR_SET_NAME, "memory-keeper");
  // Whoever reads from the parent must hear that it has ended.
  if (parent > 0) syscall(SYS_close_range, 0, parent - 1, 0);
  syscall(SYS_close_range, parent + 1, ~0U, 0);
  pollfd end = {.fd = parent, .events = POLLIN, .revents = 0};
  while (syscall(SYS_ppoll, &end, 1, nullptr, nullptr, 0) <= 0) {
  }
  syscall(SYS_exit_group, 0);
  return 0;
}

pid_t Start() {
  parent = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  if (parent < 0) return 0;
  pid_t keeper = 0;
  // Whether there is such a call: the keeper could not say that it has failed.
  if (syscall(SYS_close_range, ~0U, ~0U, 0) == 0) {
    const BlockedSignals blocked;
    // No signal tells the parent of its end, and no wait of the parent's finds it.
    keeper = clone(Keep, stack.data() + stack.size(), CLONE_VM, nullptr);
  }
  close(parent);
  return std::max(keeper, 0);
}

}  // namespace

pid_t StartMemoryKeeper() {
  static const pid_t keeper = kPossible ? Start() : 0;
  return keeper;
}

}  // namespace starling::process
