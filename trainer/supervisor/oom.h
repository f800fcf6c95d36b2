// SPDX-License-Identifier: Apache-2.0
// How often the kernel killed a process of this container because memory ran out.
//
// A process killed so looks like any other kill -9; only the control group's counter tells.
#pragma once

#include <optional>
#include <string>

namespace starling::supervisor {

// The cgroup file with an "oom_kill N" line that counts this process's container: the v2
// memory.events or the v1 memory.oom_control of the group that `proc_self_cgroup` (the text of
// /proc/self/cgroup) names under `root` (/sys/fs/cgroup). Empty: none can be read.
std::string FindOomCounter(const std::string& proc_self_cgroup, const std::string& root);

// As the option says: "none", a file, or "auto", which looks only when we are the first process of
// a container, since elsewhere the group is shared with strangers.
std::string ResolveOomCounter(const std::string& option);

// The count; nothing when the file has none.
std::optional<long long> ReadOomCounter(const std::string& file);

}  // namespace starling::supervisor
