// SPDX-License-Identifier: Apache-2.0
// JSON text to values and back, strictly and within limits.
//
// nlohmann::json's own parser accepts a million levels, duplicate keys and text after a NUL; its
// dump throws on bad UTF-8. All text that comes from outside goes through Parse, everything that
// we write goes through Dump. To add a limit, add it to Limits and to the walk in json.cc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace starling::json {

struct Limits {
  std::size_t bytes = 10U << 20U;
  std::size_t depth = 64;       // of lists and objects within one another
  std::size_t nodes = 100'000;  // values of any kind
};

// The one value that `text` holds. Refused with InvalidArgument, naming line and column or the
// value's path: syntax errors, text after the value, duplicate keys, NUL bytes, bad UTF-8, lone
// surrogates, numbers beyond a double's range, and whatever is beyond `limits`.
absl::StatusOr<nlohmann::json> Parse(std::string_view text, const Limits& limits = {});

// One line, keys sorted; never throws: bytes that are not UTF-8 become U+FFFD, NaN becomes null.
std::string Dump(const nlohmann::json& value);

// The same with two spaces of indentation a level, and no newline at the end.
std::string DumpPretty(const nlohmann::json& value);

// Whether all of `text` is well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms).
bool IsUtf8(std::string_view text);

// "a list", "an object", "the number 3", "the text \"x\"": what a value is, for error messages.
std::string Describe(const nlohmann::json& value);

}  // namespace starling::json
