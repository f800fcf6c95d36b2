// SPDX-License-Identifier: Apache-2.0
#include "trainer/supervisor/oom.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

namespace starling::supervisor {
namespace {

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// Whether the comma-separated `controllers` of a v1 line hold the memory controller.
bool ControlsMemory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

}  // namespace

std::string FindOomCounter(const std::string& proc_self_cgroup, const std::string& root) {
  std::istringstream lines(proc_self_cgroup);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (ControlsMemory(controllers)) {
      return std::string(root).append("/memory").append(group).append("/memory.oom_control");
    }
    if (controllers.empty()) found = std::string(root).append(group).append("/memory.events");
  }
  return found;
}

std::string ResolveOomCounter(const std::string& option) {
  if (option == "none") return {};
  if (option != "auto") return option;
  if (getpid() != 1) return {};
  return FindOomCounter(ReadWhole("/proc/self/cgroup"), "/sys/fs/cgroup");
}

std::optional<long long> ReadOomCounter(const std::string& file) {
  if (file.empty()) return std::nullopt;
  std::ifstream lines(file);
  std::string name;
  long long value = 0;
  while (lines >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return std::nullopt;
}

}  // namespace starling::supervisor
