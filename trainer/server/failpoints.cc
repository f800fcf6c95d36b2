// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/failpoints.h"

#include <charconv>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace starling::server {

absl::StatusOr<std::optional<Failpoint>> ParseFailpoint(std::string_view text) {
  if (text.empty()) return std::nullopt;
  Failpoint point;
  const std::string_view whole = text;
  const std::size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    point.pod = std::string(text.substr(0, slash));
    text.remove_prefix(slash + 1);
  }
  const std::size_t colon = text.find(':');
  point.name = std::string(text.substr(0, colon));
  bool good = !point.name.empty() && (slash == std::string_view::npos || !point.pod.empty());
  if (colon != std::string_view::npos) {
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, point.passes);
    good = good && read.ec == std::errc() && read.ptr == end && point.passes > 0;
  }
  if (good) return point;
  return absl::InvalidArgumentError(
      absl::StrCat("STARLING_FAILPOINT is \"", std::string(whole),
                   "\"; it must be a name, or a name and how often it is passed, as apply:3, after "
                   "the name of a pod and a slash if only that one is meant"));
}

}  // namespace starling::server
