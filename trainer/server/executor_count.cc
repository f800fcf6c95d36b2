// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/executor_count.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace starling::server {

absl::StatusOr<int> ParseExecutors(std::string_view text, int cores) {
  if (text.empty()) return std::clamp(cores - 1, 1, kMostExecutorsByDefault);
  int executors = 0;
  const absl::string_view number(text.data(), text.size());
  if (absl::SimpleAtoi(number, &executors) && executors >= 1 && executors <= kMostExecutors)
    return executors;
  return absl::InvalidArgumentError(absl::StrCat("STARLING_SERVER_EXECUTORS is \"",
                                                 std::string(text),
                                                 "\"; it must be a number of threads from 1 "
                                                 "to ",
                                                 kMostExecutors));
}

}  // namespace starling::server
