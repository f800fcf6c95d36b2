// SPDX-License-Identifier: Apache-2.0
// JSON values as YAML text in block style.
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "api/yaml/yaml.h"
#include "nlohmann/json.hpp"

namespace starling::yaml {
namespace {

using Json = nlohmann::json;

// Words that some YAML reader takes for something else than text.
constexpr std::string_view kNotText[] = {"true", "false", "null", "yes", "no",
                                         "on",   "off",   "y",    "n"};

// Whether every reader takes the text for itself without quotes.
bool IsPlain(const std::string& text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) != 0) return false;
  const bool safe = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/';
  });
  if (!safe || text[0] == '-' || text[0] == '.') return false;
  const std::string lower = absl::AsciiStrToLower(text);
  return std::find(std::begin(kNotText), std::end(kNotText), lower) == std::end(kNotText);
}

std::string Scalar(const Json& value) {
  if (value.is_string() && IsPlain(value.get_ref<const std::string&>())) {
    return value.get<std::string>();
  }
  if (value.is_array()) return "[]";
  if (value.is_object()) return "{}";
  return json::Dump(value);  // JSON's scalars are YAML's
}

bool IsBlock(const Json& value) { return value.is_structured() && !value.empty(); }

void Write(const Json& value, std::size_t indent, std::string& out);

void WriteList(const Json& list, std::size_t indent, std::string& out) {
  const std::string margin(indent, ' ');
  for (const Json& member : list) {
    if (!IsBlock(member)) {
      out.append(margin).append("- ").append(Scalar(member)).append("\n");
      continue;
    }
    // A block begins on the dash's own line, in place of its first margin.
    std::string block;
    Write(member, indent + 2, block);
    out.append(margin).append("- ").append(block, indent + 2);
  }
}

void Write(const Json& value, std::size_t indent, std::string& out) {
  if (value.is_array()) return WriteList(value, indent, out);
  const std::string margin(indent, ' ');
  for (const auto& [key, member] : value.items()) {
    out += margin + Scalar(key) + ':';
    if (!IsBlock(member)) {
      out += ' ' + Scalar(member) + '\n';
      continue;
    }
    out += '\n';
    Write(member, member.is_array() ? indent : indent + 2, out);
  }
}

}  // namespace

std::string Write(const Json& value) {
  if (!IsBlock(value)) return Scalar(value) + '\n';
  std::string text;
  Write(value, 0, text);
  return text;
}

}  // namespace starling::yaml
