// SPDX-License-Identifier: Apache-2.0
#include "api/spec/field_check.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "api/spec/uris.h"
#include "common/status/check.h"

namespace starling::spec {
namespace {

constexpr std::uint32_t kLongestMapKey = 317;  // a label's: a domain, a slash and a name

std::string CheckLength(std::string_view text, std::uint32_t most) {
  const std::size_t characters = Characters(text);
  if (characters <= most) return "";
  return absl::StrCat("must be at most ", most, " characters long, not ", characters);
}

std::string CheckFormat(std::string_view name, std::string_view text) {
  if (!PlacesOf(name).empty()) return std::string(CheckUri(name, text).message());
  // A label map's rule: its keys have one form, its values another.
  const FormatRule* format = FindFormat(name == "label" ? "labelValue" : name);
  if (format == nullptr || FullMatch(text, format->pattern)) return "";
  return absl::StrCat("must be ", std::string(format->hint));
}

auto Order(const google::protobuf::Duration& duration) {
  return std::make_tuple(duration.seconds(), duration.nanos());
}

google::protobuf::Duration Bound(const std::string& text) {
  const auto duration = ParseDuration(text);
  STARLING_CHECK(duration.ok(), "bounds of durations in the protos are durations");
  return *duration;
}

}  // namespace

std::size_t Characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // not a continuation byte
  }));
}

std::string CheckNumber(const v1alpha1::FieldRules& rules, double number) {
  if (rules.has_minimum() && number < rules.minimum()) {
    return absl::StrCat("must be at least ", NumberText(rules.minimum()), ", not ",
                        NumberText(number));
  }
  if (rules.has_exclusive_minimum() && number <= rules.exclusive_minimum()) {
    return absl::StrCat("must be more than ", NumberText(rules.exclusive_minimum()), ", not ",
                        NumberText(number));
  }
  if (rules.has_maximum() && number > rules.maximum()) {
    return absl::StrCat("must be at most ", NumberText(rules.maximum()), ", not ",
                        NumberText(number));
  }
  return "";
}

std::string CheckText(const v1alpha1::FieldRules& rules, std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return "must not hold a NUL character";
  const std::uint32_t most = rules.max_length() != 0 ? rules.max_length() : kDefaultMaxLength;
  if (std::string error = CheckLength(text, most); !error.empty()) return error;
  if (!rules.pattern().empty() && !FullMatch(text, rules.pattern())) {
    return rules.pattern_hint().empty() ? absl::StrCat("must match ", rules.pattern())
                                        : rules.pattern_hint();
  }
  return CheckFormat(rules.format(), text);
}

std::string CheckMapKey(const v1alpha1::FieldRules& rules, std::string_view key) {
  if (std::string error = CheckLength(key, kLongestMapKey); !error.empty()) {
    return "the key " + error;
  }
  if (rules.format() != "label" && rules.format() != "annotation") return "";
  const FormatRule* format = FindFormat("labelKey");
  if (FullMatch(key, format->pattern)) return "";
  return absl::StrCat("the key must be ", std::string(format->hint));
}

std::string CheckDuration(const v1alpha1::FieldRules& rules,
                          const google::protobuf::Duration& duration) {
  if (!rules.minimum_duration().empty() &&
      Order(duration) < Order(Bound(rules.minimum_duration()))) {
    return absl::StrCat("must be at least ", rules.minimum_duration(), ", not ",
                        FormatDuration(duration));
  }
  if (!rules.maximum_duration().empty() &&
      Order(duration) > Order(Bound(rules.maximum_duration()))) {
    return absl::StrCat("must be at most ", rules.maximum_duration(), ", not ",
                        FormatDuration(duration));
  }
  return "";
}

std::string CheckSize(const v1alpha1::FieldRules& rules, std::size_t size) {
  const std::size_t most = rules.max_items() != 0 ? rules.max_items() : kDefaultMaxItems;
  if (size > most) return absl::StrCat("must have at most ", most, " entries, not ", size);
  if (size < rules.min_items()) {
    return absl::StrCat("must have at least ", rules.min_items(), " entries, not ", size);
  }
  return "";
}

}  // namespace starling::spec
