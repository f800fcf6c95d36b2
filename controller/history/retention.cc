// SPDX-License-Identifier: Apache-2.0
#include "controller/history/retention.h"

namespace starling::history {

std::size_t ChooseForgotten(const std::vector<Forgettable>& oldest, Space all,
                            const Retention& retention, absl::Time now) {
  std::size_t chosen = 0;
  for (const Forgettable& job : oldest) {
    const bool old = now - job.gone > retention.age;
    const bool too_much = all.jobs > retention.jobs || all.bytes > retention.bytes;
    if (!old && !too_much) break;
    all.jobs -= 1;
    all.bytes -= job.bytes;
    ++chosen;
  }
  return chosen;
}

}  // namespace starling::history
