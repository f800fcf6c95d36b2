// SPDX-License-Identifier: Apache-2.0
#include "common/http/conditional.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status/to_absl.h"

namespace starling::http {
namespace {

// Digits alone: no sign, no blank.
std::optional<std::uint64_t> Number(absl::string_view text) {
  std::uint64_t number = 0;
  const bool digits =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || !absl::SimpleAtoi(text, &number)) return std::nullopt;
  return number;
}

}  // namespace

std::string Quoted(std::string_view value) { return absl::StrCat("\"", ToAbsl(value), "\""); }

bool HoldsTag(std::string_view list, std::string_view value) {
  const std::string tag = Quoted(value);
  for (absl::string_view one : absl::StrSplit(ToAbsl(list), ',')) {
    one = absl::StripAsciiWhitespace(one);
    if (one == "*") return true;
    absl::ConsumePrefix(&one, "W/");
    if (one == tag) return true;
  }
  return false;
}

ByteRange ParseRange(std::string_view header, std::uint64_t size) {
  constexpr ByteRange kRefused{ByteRange::Kind::kUnsatisfiable};
  absl::string_view text = absl::StripAsciiWhitespace(ToAbsl(header));
  if (!absl::StartsWithIgnoreCase(text, "bytes=")) return {};
  text.remove_prefix(6);
  const std::size_t dash = text.find('-');
  if (absl::StrContains(text, ",") || dash == absl::string_view::npos) return kRefused;
  const absl::string_view from = text.substr(0, dash), to = text.substr(dash + 1);
  const auto first = Number(from), last = Number(to);
  if (size == 0 || (!from.empty() && !first) || (!to.empty() && !last)) return kRefused;
  if (from.empty()) {  // the last so many bytes
    if (to.empty() || *last == 0) return kRefused;
    return {ByteRange::Kind::kPart, size - std::min(*last, size), size - 1};
  }
  const std::uint64_t end = to.empty() ? size - 1 : std::min(*last, size - 1);
  if (*first > end) return kRefused;
  return {ByteRange::Kind::kPart, *first, end};
}

}  // namespace starling::http
