// SPDX-License-Identifier: Apache-2.0
#include "common/http/message.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/status/to_absl.h"

namespace starling::http {
namespace {

std::string_view Find(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase(key, ToAbsl(name))) return value;
  }
  return "";
}

bool Has(std::string_view set, unsigned char c) {
  return set.find(static_cast<char>(c)) != std::string_view::npos;
}

}  // namespace

std::string_view Request::Path() const {
  return std::string_view(target).substr(0, target.find('?'));
}
std::string_view Request::Header(std::string_view name) const { return Find(headers, name); }
std::string_view Response::Header(std::string_view name) const { return Find(headers, name); }

bool IsHeaderText(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c == '\t' || (c >= 0x20 && c != 0x7f); });
}

bool IsToken(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || Has("!#$%&'*+-.^_`|~", c);
  });
}

std::string PercentEncode(std::string_view text, std::string_view keep) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || Has("-._~", byte) || Has(keep, byte)) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kDigits[byte >> 4U];
      encoded += kDigits[byte & 15U];
    }
  }
  return encoded;
}

}  // namespace starling::http
