// SPDX-License-Identifier: Apache-2.0
// Lets the connections of a process that is killed end at once, and its memory afterwards.
//
// Linux frees the memory of a process that was killed before it closes its descriptors: 6 GB take
// 0.4 s, in which its peers wait for a process that is gone, and its ports are taken. Where another
// process shares the memory, the one that is killed has none to free: its descriptors are closed
// within a millisecond. The keeper is such a process. It holds no descriptor and takes no signal
// but SIGKILL; it waits for the end of its parent, ends, and frees the memory. Whoever reaps the
// parent's orphans (a pod's supervisor) waits for it too before it starts a successor.
//
// In lists of processes it has the parent's command line and, as memory is shared, the parent's
// memory, which is there once. A program that replaces itself (exec) keeps its old memory until it
// ends.
#pragma once

#include <sys/types.h>

namespace starling::process {

// Starts this process's keeper, unless it has one. Its pid, or 0 where the system can have none
// (Linux before 5.9, a sandbox): the process then ends as all others do.
pid_t StartMemoryKeeper();

}  // namespace starling::process
