// SPDX-License-Identifier: Apache-2.0
// What a client already has, and which part it wants: entity tags and byte ranges (RFC 9110).
//
// Pure functions over the values of If-None-Match, If-Match and Range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace starling::http {

// `value` in quotes, as an ETag header has it.
std::string Quoted(std::string_view value);

// Whether a list of tags, such as `"a", W/"b"` or `*`, holds the tag of `value` (without quotes).
// Weak tags count as their strong ones.
bool HoldsTag(std::string_view list, std::string_view value);

// One part of a body of `size` bytes.
struct ByteRange {
  enum class Kind {
    kWhole,         // no range is asked for, or in a unit that is not bytes
    kPart,          // from `first` to `last`, both included
    kUnsatisfiable  // behind the end, malformed, or several: 416
  };
  Kind kind = Kind::kWhole;
  std::uint64_t first = 0;
  std::uint64_t last = 0;

  std::uint64_t length() const { return last - first + 1; }
};

// Several ranges at once are refused: overlapping ones would multiply the work.
ByteRange ParseRange(std::string_view header, std::uint64_t size);

}  // namespace starling::http
