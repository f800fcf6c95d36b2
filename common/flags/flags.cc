// SPDX-License-Identifier: Apache-2.0
#include "common/flags/flags.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::flags {

App::App() {
  set_help_flag();
  option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

CLI::Option* App::AddDuration(const std::string& names, absl::Duration& target,
                              absl::Duration least, const std::string& help) {
  const auto set = [&target, least, names](const std::string& text) {
    if (absl::ParseDuration(text, &target) && target >= least) return;
    throw CLI::ValidationError(
        names, absl::StrCat("\"", text, "\" must be a duration such as 2s or 500ms, and not ",
                            "shorter than ", absl::FormatDuration(least)));
  };
  return add_option_function<std::string>(names, set, help)
      ->type_name("DURATION")
      ->default_str(absl::FormatDuration(target));
}

absl::Status App::Parse(std::vector<std::string> arguments) {
  for (std::string& word : arguments) {
    if (word == "--") break;
    // -o=json, as kubectl takes it, is -ojson to CLI11.
    if (word.size() > 2 && word[0] == '-' && word[1] != '-' && word[2] == '=') word.erase(2, 1);
  }
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    parse(std::move(arguments));
    return absl::OkStatus();
  } catch (const CLI::ArgumentMismatch& error) {
    // "--name: 1 required TEXT missing", or "name was given a disallowed flag override".
    const std::string text = error.what();
    const std::size_t colon = text.find(':');
    if (colon != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(text.substr(0, colon), " needs a value"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--", text.substr(0, text.find(' ')), " takes no value"));
  } catch (const CLI::Error& error) {
    const std::string unknown = Unknown();
    if (unknown.empty()) return absl::InvalidArgumentError(error.what());
    return absl::InvalidArgumentError(
        absl::StrCat(unknown.starts_with('-') ? "unknown flag " : "unexpected argument ", unknown));
  }
}

std::string App::Unknown() const {
  for (const std::string& left : remaining()) {
    if (left != "--") return left.substr(0, left.find('='));
  }
  return "";
}

}  // namespace starling::flags
