// SPDX-License-Identifier: Apache-2.0
#include "trainer/control/options.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/flags/flags.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "nlohmann/json.hpp"

namespace starling::control {
namespace {

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
  flags::App app;
  app.add_option("--spec", options.spec_path)->required();
  app.add_option("--secret", options.secret_path)->required();
  app.add_option("--address", options.address)->required();
  app.add_option("--pod-name", options.pod_name)->required();
  app.add_option("--pod-uid", options.pod_uid)->required();
  app.add_option("--job-uid", options.job_uid)->required();
  app.add_option("--job-name", options.job_name)->required();
  app.add_option("--job-dir", options.job_dir)->required();
  app.add_option("--tls", options.tls_path)->required();
  app.add_option("--grace", options.grace);
  RETURN_IF_ERROR(app.Parse(arguments));
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
