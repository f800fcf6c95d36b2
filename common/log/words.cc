// SPDX-License-Identifier: Apache-2.0
#include "common/log/words.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace starling::log {
namespace {

std::optional<std::string> TextAt(const nlohmann::json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

// Nullopt: the line is no entry.
std::optional<std::string> MessageOf(std::string_view line) {
  if (!line.starts_with('{')) return std::nullopt;
  const auto entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!entry.is_object()) return std::nullopt;
  std::optional<std::string> message = TextAt(entry, "msg");
  for (const char* key : {"why", "error"}) {
    const auto more = TextAt(entry, key);
    if (message && more) absl::StrAppend(&*message, ": ", *more);
  }
  return message;
}

}  // namespace

std::string WordsOf(std::string_view lines) {
  std::string words, newest;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    if (line.empty()) continue;
    if (const auto message = MessageOf(line)) {
      newest = *message;
    } else {
      words.append(words.empty() ? "" : "\n").append(line);
    }
  }
  return words.empty() ? newest : words;
}

}  // namespace starling::log
