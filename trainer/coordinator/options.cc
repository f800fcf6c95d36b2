// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/options.h"

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"

namespace starling::coordinator {
namespace {

using Setter = std::function<bool(Options&, const std::string&)>;

Setter Text(std::string Options::*field) {
  return [field](Options& options, const std::string& value) {
    options.*field = value;
    return !value.empty();
  };
}

Setter Length(absl::Duration Options::*field) {
  return [field](Options& options, const std::string& value) {
    return absl::ParseDuration(value, &(options.*field)) && options.*field > absl::ZeroDuration();
  };
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  const std::map<std::string, Setter> flags = {
      {"--spec", Text(&Options::spec_path)},
      {"--tls", Text(&Options::tls_path)},
      {"--job-uid", Text(&Options::job_uid)},
      {"--address", Text(&Options::address)},
      {"--pod-name", Text(&Options::pod_name)},
      {"--pod-uid", Text(&Options::pod_uid)},
      {"--heartbeat-timeout", Length(&Options::heartbeat_timeout)},
      {"--takeover-timeout", Length(&Options::takeover_timeout)},
  };
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const auto flag = flags.find(name);
    if (flag == flags.end()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": no such flag"));
    }
    if (equals == std::string::npos && i + 1 == arguments.size()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": needs a value"));
    }
    const std::string value =
        equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1);
    if (!flag->second(options, value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": \"", value, "\" is not a value for it (text, or a duration such as 1s)"));
    }
  }
  if (options.spec_path.empty() || options.tls_path.empty() || options.job_uid.empty() ||
      options.address.empty()) {
    return absl::InvalidArgumentError("--spec, --tls, --job-uid and --address: all must be given");
  }
  return options;
}

}  // namespace starling::coordinator
