// SPDX-License-Identifier: Apache-2.0
#include "common/storage/place.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/http/message.h"
#include "common/status/to_absl.h"

namespace starling::storage {
namespace {

constexpr std::string_view kFileScheme = "file://";
constexpr std::string_view kS3Scheme = "s3://";

// What stands before "://" or a first ':' that no '/' precedes; empty for a plain path.
std::string_view SchemeOf(std::string_view uri) {
  const auto colon = uri.find(':');
  if (colon == std::string_view::npos || colon == 0 || uri.find('/') < colon) return {};
  const std::string_view scheme = uri.substr(0, colon);
  const bool legal = std::all_of(scheme.begin(), scheme.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
  });
  return legal ? scheme : std::string_view{};
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool HasControlCharacters(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return c < 0x20U || c == 0x7FU; });
}

absl::StatusOr<std::string> DecodePercent(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      return absl::InvalidArgumentError(
          "has a % without two hexadecimal digits after it; write %25 for a % in a file:// URI");
    }
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

bool IsBucket(std::string_view name) {
  return name.size() >= 3 && name.size() <= 63 && name.front() != '.' && name.back() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-' || c == '.';
         });
}

absl::StatusOr<Place> ParseS3(std::string_view uri) {
  std::string_view path = uri.substr(std::min(uri.size(), kS3Scheme.size()));
  const std::size_t slash = std::min(path.find('/'), path.size());
  if (!uri.starts_with(kS3Scheme) || !IsBucket(path.substr(0, slash))) {
    return absl::InvalidArgumentError(
        "must be s3://bucket/key; a bucket's name is 3 to 63 lower-case letters, digits, '-' and "
        "'.'");
  }
  // A key that URLs cannot hold as it is would be another one at the next program that reads it.
  const std::string_view key = path.substr(slash);
  if (key.find("//") != std::string_view::npos || absl::StrContains(ToAbsl(key), "/../") ||
      absl::StrContains(ToAbsl(key), "/./") || key.ends_with("/..") || key.ends_with("/.")) {
    return absl::InvalidArgumentError("must not hold //, /./ or /../ behind the bucket");
  }
  return Place{Place::Kind::kS3, std::string(path)};
}

// {000..127} in a text: what stands before, the range, and what stands behind.
struct NumberRange {
  std::string_view before;
  std::string_view begin;
  std::string_view end;
  std::string_view behind;
};

bool IsNumber(std::string_view text) {
  constexpr std::size_t kMostDigits = 9;
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::optional<NumberRange> FindRange(std::string_view text) {
  for (std::size_t open = text.find('{'); open != std::string_view::npos;
       open = text.find('{', open + 1)) {
    const std::size_t close = text.find('}', open);
    if (close == std::string_view::npos) break;
    const std::string_view inside = text.substr(open + 1, close - open - 1);
    const std::size_t dots = inside.find("..");
    if (dots == std::string_view::npos) continue;
    const NumberRange range = {text.substr(0, open), inside.substr(0, dots),
                               inside.substr(dots + 2), text.substr(close + 1)};
    if (IsNumber(range.begin) && IsNumber(range.end)) return range;
  }
  return std::nullopt;
}

std::string Padded(std::uint64_t number, std::size_t digits) {
  std::string text = absl::StrCat(number);
  if (text.size() < digits) text.insert(0, digits - text.size(), '0');
  return text;
}

}  // namespace

UriParts SplitUri(std::string_view uri) {
  const std::size_t slash = uri.rfind('/');
  if (slash == std::string_view::npos) return {".", std::string(uri)};
  return {std::string(uri.substr(0, slash + 1)), std::string(uri.substr(slash + 1))};
}

absl::StatusOr<std::vector<std::string>> ExpandRanges(std::string_view uri) {
  const std::optional<NumberRange> range = FindRange(uri);
  if (!range.has_value()) return std::vector<std::string>{std::string(uri)};
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (!absl::SimpleAtoi(ToAbsl(range->begin), &begin) ||
      !absl::SimpleAtoi(ToAbsl(range->end), &end) || end < begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("has a range {", ToAbsl(range->begin), "..", ToAbsl(range->end),
                     "} that does not count up; write the smaller number first"));
  }
  const bool padded = range->begin.front() == '0' || range->end.front() == '0';
  const std::size_t digits = padded ? std::max(range->begin.size(), range->end.size()) : 0;
  auto behind = ExpandRanges(range->behind);
  if (!behind.ok()) return behind.status();
  if (end - begin >= kMostUris / behind->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("stands for more than ", kMostUris, " files; use fewer and larger ones"));
  }
  std::vector<std::string> uris;
  for (std::uint64_t number = begin; number <= end; ++number) {
    for (const std::string& rest : *behind) {
      uris.push_back(absl::StrCat(ToAbsl(range->before), Padded(number, digits), rest));
    }
  }
  return uris;
}

absl::StatusOr<Place> ParsePlace(std::string_view uri) {
  if (uri.empty()) return absl::InvalidArgumentError("must not be empty; write the path of a file");
  if (HasControlCharacters(uri)) {
    return absl::InvalidArgumentError("must not hold control characters");
  }
  const std::string_view scheme = SchemeOf(uri);
  if (scheme.empty()) return Place{Place::Kind::kFile, std::string(uri)};
  if (scheme == "http" || scheme == "https") {
    if (uri.find_first_of("?#") == std::string_view::npos) {
      return Place{Place::Kind::kHttp, std::string(uri)};
    }
    return absl::InvalidArgumentError(
        "must not hold ? or #; write %3F or %23 where they belong to a file's name");
  }
  if (scheme == "s3") return ParseS3(uri);
  if (scheme != "file") {
    return absl::InvalidArgumentError(
        absl::StrCat("has the scheme ", ToAbsl(scheme),
                     ", which is not known; write a path, file:///path, s3://bucket/key or "
                     "https://host/path"));
  }
  if (uri.substr(0, kFileScheme.size() + 1) != "file:///") {
    return absl::InvalidArgumentError("must be file:///path, with three slashes, or a plain path");
  }
  auto path = DecodePercent(uri.substr(kFileScheme.size()));
  if (!path.ok()) return path.status();
  if (HasControlCharacters(*path)) {
    return absl::InvalidArgumentError("must not hold control characters");
  }
  return Place{Place::Kind::kFile, *std::move(path)};
}

std::string FileUri(std::string_view path) {
  return absl::StrCat(ToAbsl(kFileScheme), http::PercentEncode(path, "/"));
}

std::string Below(std::string_view uri, std::string_view name) {
  const std::string_view scheme = SchemeOf(uri);
  const bool is_encoded = !scheme.empty() && scheme != "s3";
  while (!uri.empty() && uri.back() == '/') uri.remove_suffix(1);
  return absl::StrCat(ToAbsl(uri), "/",
                      is_encoded ? http::PercentEncode(name, "/") : std::string(name));
}

}  // namespace starling::storage
