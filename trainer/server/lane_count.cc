// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/lane_count.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace starling::server {

absl::StatusOr<int> ParseLanes(std::string_view text, int cores) {
  if (text.empty()) return std::clamp(cores - 1, 1, kMostLanesByDefault);
  int lanes = 0;
  const absl::string_view number(text.data(), text.size());
  if (absl::SimpleAtoi(number, &lanes) && lanes >= 1 && lanes <= kMostLanes) return lanes;
  return absl::InvalidArgumentError(absl::StrCat("STARLING_SERVER_LANES is \"", std::string(text),
                                                 "\"; it must be a number of threads from 1 "
                                                 "to ",
                                                 kMostLanes));
}

}  // namespace starling::server
