// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace starling::transport {

int CoresOf(std::string_view cpu_max, int allowed) {
  const int most = std::max(1, allowed);
  const std::vector<std::string> parts = absl::StrSplit(
      absl::string_view(cpu_max.data(), cpu_max.size()), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  double quota = 0, period = 0;
  const bool limited = parts.size() == 2 && absl::SimpleAtod(parts[0], &quota) &&
                       absl::SimpleAtod(parts[1], &period) && quota > 0 && period > 0;
  if (!limited || quota / period >= most) return most;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

int CoresHere() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  // In a container the root of its control group is here.
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::stringstream text;
  text << file.rdbuf();
  return CoresOf(text.str(), known ? CPU_COUNT(&allowed) : 1);
}

}  // namespace starling::transport
