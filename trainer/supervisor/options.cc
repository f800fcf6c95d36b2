// SPDX-License-Identifier: Apache-2.0
#include "trainer/supervisor/options.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>
#include <utility>

namespace starling::supervisor {
namespace {

using Setter = std::function<bool(const std::string& value)>;

bool ToNumber(const std::string& text, long long& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

bool ToPolicy(const std::string& text, RestartPolicy& policy) {
  if (text == "OnFailure") policy = RestartPolicy::kOnFailure;
  if (text == "ExitCode") policy = RestartPolicy::kExitCode;
  if (text == "Never") policy = RestartPolicy::kNever;
  return text == "OnFailure" || text == "ExitCode" || text == "Never";
}

Setter Text(std::string& target) {
  return [&target](const std::string& value) {
    target = value;
    return !value.empty();
  };
}

template <typename Target>
Setter Number(Target& target) {
  return [&target](const std::string& value) {
    long long number = 0;
    if (!ToNumber(value, number)) return false;
    target = Target(number);
    return true;
  };
}

std::string FindVariable(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

}  // namespace

std::string ParseOptions(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment, Options& options) {
  std::string exit_record;
  const std::pair<std::string_view, Setter> table[] = {
      {"--alive-fifo", Text(options.alive_fifo)},
      {"--exit-record", Text(exit_record)},
      {"--termination-log", Text(options.termination_log)},
      {"--progress-file", Text(options.progress_file)},
      {"--job-dir", Text(options.job_folder)},
      {"--env",
       [&options](const std::string& value) {
         options.variables.push_back(value);
         return value.find('=', 1) != std::string::npos;
       }},
      {"--oom-counter", Text(options.oom_counter)},
      {"--restart-policy",
       [&options](const std::string& value) { return ToPolicy(value, options.restart_policy); }},
      {"--max-restarts", Number(options.max_restarts)},
      {"--grace-ms", Number(options.grace)},
      {"--alive-timeout-ms", Number(options.alive_timeout)},
      {"--log-limit", Number(options.log_limit)},
  };
  std::size_t next = 0;
  while (next < arguments.size() && arguments[next] != "--") {
    std::string name = arguments[next++];
    std::string value;
    if (const auto equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (next < arguments.size()) {
      value = arguments[next++];
    }
    const auto* row = std::find_if(std::begin(table), std::end(table),
                                   [&name](const auto& entry) { return entry.first == name; });
    if (row == std::end(table)) return "unknown flag " + name;
    if (!row->second(value)) return name.append(": \"").append(value) + "\" is no value for it";
  }
  if (next + 1 >= arguments.size()) return "no role: write -- and its program after the flags";
  options.role.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next) + 1, arguments.end());

  const std::string inherited = FindVariable(environment, "STARLING_EXIT_RECORD");
  if (!inherited.empty()) options.exit_records.push_back(inherited);
  if (!exit_record.empty() && exit_record != inherited) options.exit_records.push_back(exit_record);
  if (options.alive_fifo.empty()) {
    options.alive_fifo = FindVariable(environment, "STARLING_ALIVE_FIFO");
  }
  if (options.oom_counter == "auto") {
    const std::string counter = FindVariable(environment, "STARLING_OOM_COUNTER");
    if (!counter.empty()) options.oom_counter = counter;
  }
  return {};
}

void AddVariables(const Options& options, std::vector<std::string>& environment) {
  std::vector<std::string> added = options.variables;
  if (!options.job_folder.empty()) added.push_back("STARLING_JOB_DIR=" + options.job_folder);
  for (std::string& variable : added) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    const bool given = std::any_of(environment.begin(), environment.end(),
                                   [&name](const auto& entry) { return entry.starts_with(name); });
    if (!given) environment.push_back(std::move(variable));
  }
}

}  // namespace starling::supervisor
