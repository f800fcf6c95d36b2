// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/options.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::manager {
namespace {

absl::StatusOr<log::Level> ParseLevel(const std::string& text) {
  if (text == "debug") return log::Level::kDebug;
  if (text == "info") return log::Level::kInfo;
  if (text == "warning") return log::Level::kWarning;
  if (text == "error") return log::Level::kError;
  return absl::InvalidArgumentError(
      absl::StrCat("--log-level ", text, ": must be debug, info, warning or error"));
}

absl::Status SetFlag(const std::string& flag, const std::string& value, Options& options) {
  if (flag == "--home") {
    options.home = std::filesystem::absolute(value).lexically_normal().string();
  } else if (flag == "--log-level") {
    ASSIGN_OR_RETURN(options.log_level, ParseLevel(value));
  } else if (flag == "--coordinator-silence") {
    if (!absl::ParseDuration(value, &options.coordinator_silence) ||
        options.coordinator_silence < absl::Milliseconds(100)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--coordinator-silence ", value, ": must be a duration of at least 100ms, such as 2s"));
    }
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": no such flag; see starling-controller --help"));
  }
  return absl::OkStatus();
}

}  // namespace

const char* Usage() {
  return "usage: starling-controller --home FOLDER [flags]\n"
         "\n"
         "Runs the TrainingJobs of one STARLING_HOME as processes of this machine.\n"
         "\n"
         "  --home FOLDER              where store, job folders and lock lie (STARLING_HOME)\n"
         "  --exit-when-idle           exit once no job is active for two seconds\n"
         "  --coordinator-silence 2s   replace a coordinator that is silent for this long\n"
         "  --log-level info           debug, info, warning or error\n"
         "\n"
         "SIGTERM saves and ends all pods; unfinished jobs go on when it is started again. If it "
         "is\n"
         "killed, its successor takes over the pods that run.\n"
         "Exit codes: 0 asked to end or idle, 1 failed, 2 wrong flags or another controller "
         "runs.\n";
}

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string flag = arguments[i];
    if (flag == "--exit-when-idle") {
      options.exit_when_idle = true;
      continue;
    }
    std::string value;
    if (const std::size_t equals = flag.find('='); equals != std::string::npos) {
      value = flag.substr(equals + 1);
      flag.resize(equals);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return absl::InvalidArgumentError(absl::StrCat(flag, ": needs a value"));
    }
    RETURN_IF_ERROR(SetFlag(flag, value, options));
  }
  if (options.home.empty()) {
    const char* home = std::getenv("STARLING_HOME");
    if (home == nullptr || *home == '\0') {
      return absl::InvalidArgumentError("--home: must be given (or STARLING_HOME be set)");
    }
    options.home = std::filesystem::absolute(home).lexically_normal().string();
  }
  return options;
}

}  // namespace starling::manager
