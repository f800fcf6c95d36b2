// SPDX-License-Identifier: Apache-2.0
// The controller's command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/log/log.h"

namespace starling::manager {

struct Options {
  std::string home;             // STARLING_HOME, absolute
  bool exit_when_idle = false;  // leave once there has been nothing to do for a while
  log::Level log_level = log::Level::kInfo;
  // Without a sign of life for this long a coordinator is replaced.
  absl::Duration coordinator_silence = absl::Seconds(2);
};

// The usage text, for --help.
const char* Usage();

// `arguments` without the program's name. InvalidArgument: what is wrong, and the remedy.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments);

}  // namespace starling::manager
