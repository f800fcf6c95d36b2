// SPDX-License-Identifier: Apache-2.0
// From a request's method and target to its route, with all values read and checked. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "api/rest/problem.h"
#include "api/rest/routes.h"

namespace starling::rest {

// Of a query parameter's value, in bytes.
inline constexpr std::size_t kLongestText = 1024;

struct Call {
  const Route* route;
  std::string ns;                                         // empty: the path has none
  std::string name;                                       // of the job
  std::map<std::string, std::string, std::less<>> query;  // what was given, checked

  // What was given, else the parameter's default; empty where it has none.
  std::string Text(std::string_view parameter) const;
  bool Flag(std::string_view parameter) const;
  // Of choices: whether this is one of those that were given, or are so by default.
  bool Holds(std::string_view parameter, std::string_view choice) const;
  // Nothing: it was not given and has no default.
  std::optional<std::int64_t> Integer(std::string_view parameter) const;
};

// `method` and `target` as the request's first line has them. Unknown paths, methods, parameters
// and values are refused, each with what would be right.
std::variant<Call, Problem> FindRoute(std::string_view method, std::string_view target);

// %41 becomes A. Nothing: a % that two hexadecimal digits do not follow.
std::optional<std::string> PercentDecode(std::string_view text);

}  // namespace starling::rest
