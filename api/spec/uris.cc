// SPDX-License-Identifier: Apache-2.0
#include "api/spec/uris.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "api/spec/contract.h"
#include "google/protobuf/message.h"

namespace starling::spec {
namespace {

using google::protobuf::Message;

constexpr std::string_view kFileScheme = "file://";

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

std::string Absolute(const std::string& path, const UriBases& bases) {
  const std::filesystem::path given(path);
  if (given.is_absolute()) return path;
  const auto exists = [&bases](const std::filesystem::path& place) {
    if (bases.exists) return bases.exists(place);
    std::error_code ignored;
    return std::filesystem::exists(place, ignored);
  };
  if (!bases.job_folder.empty()) {
    const auto beside = (bases.working_directory / bases.job_folder / given).lexically_normal();
    if (exists(beside)) return beside.string();
  }
  return (bases.working_directory / given).lexically_normal().string();
}

}  // namespace

absl::StatusOr<std::string> PathOfUri(std::string_view uri) {
  if (uri.empty()) return absl::InvalidArgumentError("must not be empty; write the path of a file");
  if (HasControlCharacters(uri)) {
    return absl::InvalidArgumentError("must not hold control characters");
  }
  const std::string_view scheme = SchemeOf(uri);
  if (scheme.empty()) return std::string(uri);
  if (scheme != "file") {
    return absl::InvalidArgumentError(
        absl::StrCat("has the scheme ", std::string(scheme),
                     ", but only files can be used so far; write a path or file:///path"));
  }
  if (uri.substr(0, kFileScheme.size() + 1) != "file:///") {
    return absl::InvalidArgumentError("must be file:///path, with three slashes, or a plain path");
  }
  auto path = DecodePercent(uri.substr(kFileScheme.size()));
  if (path.ok() && HasControlCharacters(*path)) {
    return absl::InvalidArgumentError("must not hold control characters");
  }
  return path;
}

void MakeUrisAbsolute(Message& message, const UriBases& bases) {
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> present;
  reflection.ListFields(message, &present);
  for (const FieldDescriptor* field : present) {
    if (field->is_map()) continue;
    if (KindOf(*field) == Kind::kMessage) {
      if (!field->is_repeated()) {
        MakeUrisAbsolute(*reflection.MutableMessage(&message, field), bases);
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        MakeUrisAbsolute(*reflection.MutableRepeatedMessage(&message, field, i), bases);
      }
    } else if (RulesOf(*field).format() == "uri" && !field->is_repeated()) {
      const auto path = PathOfUri(reflection.GetString(message, field));
      if (path.ok()) reflection.SetString(&message, field, Absolute(*path, bases));
    }
  }
}

}  // namespace starling::spec
