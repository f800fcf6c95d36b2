// SPDX-License-Identifier: Apache-2.0
#include "trainer/control/options.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "nlohmann/json.hpp"

namespace starling::control {
namespace {

struct Flag {
  std::string_view name;
  std::string Options::*value;
  bool required;
};

constexpr Flag kFlags[] = {
    {"--spec", &Options::spec_path, true},    {"--secret", &Options::secret_path, true},
    {"--address", &Options::address, true},   {"--pod-name", &Options::pod_name, true},
    {"--pod-uid", &Options::pod_uid, true},   {"--job-uid", &Options::job_uid, true},
    {"--job-name", &Options::job_name, true}, {"--job-dir", &Options::job_dir, true},
    {"--tls", &Options::tls_path, true},      {"--grace", &Options::grace, false},
};

const Flag* Find(std::string_view name) {
  for (const Flag& flag : kFlags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <typename Number>
Number NumberOr(const nlohmann::json& object, const char* key, Number otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<Number>() : otherwise;
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name(argument.substr(0, equals));
    const Flag* flag = Find(name);
    if (flag == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("unknown flag ", name));
    }
    if (equals == std::string_view::npos && i + 1 == arguments.size()) {
      return absl::InvalidArgumentError(absl::StrCat("flag ", name, " needs a value"));
    }
    options.*flag->value = equals == std::string_view::npos
                               ? arguments[++i]
                               : std::string(argument.substr(equals + 1));
  }
  for (const Flag& flag : kFlags) {
    if (flag.required && (options.*flag.value).empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag ", std::string(flag.name), " is required"));
    }
  }
  return options;
}

absl::Status ReadEnvironment(Options& options) {
  const std::string start = FromEnvironment("STARLING_POD_START");
  if (!start.empty() && !absl::SimpleAtoi(start, &options.start)) {
    return absl::InvalidArgumentError(
        absl::StrCat("STARLING_POD_START must be a number, not '", start, "'"));
  }
  options.last_exit = FromEnvironment("STARLING_LAST_EXIT");
  options.progress_file = FromEnvironment("STARLING_PROGRESS_FILE");
  const std::string prefix = FromEnvironment("STARLING_STEP_LOG");
  if (!prefix.empty()) options.step_log = absl::StrCat(prefix, ".", options.pod_name);
  return absl::OkStatus();
}

std::string NameOf(const membership::MemberId& id) {
  return absl::StrCat(id.pod_uid, "/", id.start);
}

std::optional<membership::LastExit> ReadLastExit(const std::string& path) {
  if (path.empty()) return std::nullopt;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const absl::StatusOr<nlohmann::json> json = json::Parse(text.str());
  if (!json.ok() || !json->is_object()) return std::nullopt;
  membership::LastExit exit;
  exit.exit_code = NumberOr<int64_t>(*json, "exitCode", 0);
  exit.signal = NumberOr<int64_t>(*json, "signal", 0);
  exit.unix_nanos = NumberOr<int64_t>(*json, "unixNanos", 0);
  const auto tail = json->find("logTail");
  if (tail != json->end() && tail->is_string()) exit.log_tail = tail->get<std::string>();
  return exit;
}

}  // namespace starling::control
