// SPDX-License-Identifier: Apache-2.0
#include "api/rest/router.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/json/json.h"
#include "common/status/to_absl.h"

namespace starling::rest {
namespace {

constexpr std::size_t kLongestName = 253;

// RFC 1123's names, which namespaces and jobs have: nothing that a path could climb out with.
bool IsName(std::string_view text) {
  const auto plain = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c));
  };
  return !text.empty() && text.size() <= kLongestName && plain(text.front()) &&
         plain(text.back()) && std::all_of(text.begin(), text.end(), [&](char c) {
           return plain(c) || c == '-' || c == '.';
         });
}

Problem Malformed(std::string detail, std::string remedy = "") {
  return MakeProblem("MalformedRequest", std::move(detail), std::move(remedy));
}

// The values of {namespace} and {name}, still encoded, if `path` has the form of `pattern`.
std::optional<std::vector<std::string_view>> MatchPath(std::string_view pattern,
                                                       std::string_view path) {
  std::vector<std::string_view> values;
  while (!pattern.empty()) {
    if (pattern.front() != '{') {
      if (path.empty() || path.front() != pattern.front()) return std::nullopt;
      pattern.remove_prefix(1);
      path.remove_prefix(1);
      continue;
    }
    pattern.remove_prefix(pattern.find('}') + 1);
    const std::size_t end = std::min(path.find_first_of("/:"), path.size());
    if (end == 0) return std::nullopt;
    values.push_back(path.substr(0, end));
    path.remove_prefix(end);
  }
  if (!path.empty()) return std::nullopt;
  return values;
}

// Some of the choices, at least one, none twice.
bool AreChoices(std::string_view choices, const std::string& value) {
  const std::set<absl::string_view> known = absl::StrSplit(ToAbsl(choices), ',');
  std::set<absl::string_view> given;
  for (const absl::string_view choice : absl::StrSplit(value, ',')) {
    if (!known.contains(choice) || !given.insert(choice).second) return false;
  }
  return true;
}

std::optional<Problem> CheckValue(const Parameter& parameter, const std::string& value) {
  const std::string name(parameter.name);
  std::int64_t number = 0;
  switch (parameter.kind) {
    case ValueKind::kText:
      return std::nullopt;
    case ValueKind::kInteger:
      if (absl::SimpleAtoi(value, &number) && number >= parameter.minimum &&
          number <= parameter.maximum) {
        return std::nullopt;
      }
      return Malformed(absl::StrCat("query parameter ", name, ": must be a whole number from ",
                                    parameter.minimum, " to ", parameter.maximum));
    case ValueKind::kBoolean:
      if (value == "true" || value == "false" || value == "1" || value == "0") return std::nullopt;
      return Malformed(absl::StrCat("query parameter ", name, ": must be true or false"));
    case ValueKind::kChoice:
      for (const absl::string_view choice : absl::StrSplit(ToAbsl(parameter.choices), ',')) {
        if (value == choice) return std::nullopt;
      }
      return Malformed(
          absl::StrCat("query parameter ", name, ": must be one of ", ToAbsl(parameter.choices)));
    case ValueKind::kChoices:
      if (AreChoices(parameter.choices, value)) return std::nullopt;
      return Malformed(absl::StrCat("query parameter ", name, ": must be some of ",
                                    ToAbsl(parameter.choices), ", each once"));
  }
  return std::nullopt;
}

const Parameter* FindParameter(const Route& route, std::string_view name) {
  const auto found = std::find_if(route.query.begin(), route.query.end(),
                                  [&](const Parameter& known) { return known.name == name; });
  return found == route.query.end() ? nullptr : &*found;
}

Problem UnknownParameter(const Route& route, const std::string& name) {
  std::vector<std::string> known;
  for (const Parameter& parameter : route.query) known.emplace_back(parameter.name);
  return Malformed(absl::StrCat("query parameter ", name.substr(0, 100), ": unknown",
                                spec::DidYouMean(name, known)),
                   known.empty() ? "send the request without parameters"
                                 : absl::StrCat("use one of ", absl::StrJoin(known, ", ")));
}

std::optional<Problem> ReadQuery(std::string_view text, Call& call) {
  for (const absl::string_view pair : absl::StrSplit(ToAbsl(text), '&', absl::SkipEmpty())) {
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const auto name = PercentDecode({pair.data(), equals});
    std::string encoded(pair.substr(std::min(equals + 1, pair.size())));
    std::replace(encoded.begin(), encoded.end(), '+', ' ');
    const auto value = PercentDecode(encoded);
    if (!name || !value || !json::IsUtf8(*name) || !json::IsUtf8(*value) ||
        value->size() > kLongestText || value->find('\0') != std::string::npos) {
      return Malformed("the query is not percent-encoded UTF-8 of moderate length");
    }
    const Parameter* parameter = FindParameter(*call.route, *name);
    if (parameter == nullptr) return UnknownParameter(*call.route, *name);
    if (auto problem = CheckValue(*parameter, *value)) return problem;
    if (!call.query.emplace(*name, *value).second) {
      return Malformed(absl::StrCat("query parameter ", *name, ": is given more than once"));
    }
  }
  return std::nullopt;
}

// Whether the names in the path are ones.
std::optional<Problem> ReadPath(const std::vector<std::string_view>& values, Call& call) {
  std::vector<std::string> names;
  for (const std::string_view value : values) {
    const auto name = PercentDecode(value);
    if (!name || !IsName(*name)) {
      return Malformed("the path names a namespace or a job that cannot be",
                       "names are lower-case letters, digits, '-' and '.'");
    }
    names.push_back(*name);
  }
  if (!names.empty()) call.ns = names[0];
  if (names.size() > 1) call.name = names[1];
  return std::nullopt;
}

}  // namespace

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    int byte = 0;
    const std::string digits(text.substr(i + 1, 2));
    const bool hexadecimal =
        digits.size() == 2 && std::all_of(digits.begin(), digits.end(),
                                          [](unsigned char c) { return absl::ascii_isxdigit(c); });
    if (!hexadecimal || !absl::SimpleHexAtoi(digits, &byte)) return std::nullopt;
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

std::string Call::Text(std::string_view parameter) const {
  const auto given = query.find(parameter);
  if (given != query.end()) return given->second;
  const Parameter* known = FindParameter(*route, parameter);
  return known == nullptr ? "" : std::string(known->otherwise);
}

bool Call::Flag(std::string_view parameter) const {
  const std::string text = Text(parameter);
  return text == "true" || text == "1";
}

bool Call::Holds(std::string_view parameter, std::string_view choice) const {
  const std::string text = Text(parameter);
  const std::vector<std::string> choices = absl::StrSplit(text, ',');
  return std::find(choices.begin(), choices.end(), choice) != choices.end();
}

std::optional<std::int64_t> Call::Integer(std::string_view parameter) const {
  std::int64_t number = 0;
  if (!absl::SimpleAtoi(Text(parameter), &number)) return std::nullopt;
  return number;
}

std::variant<Call, Problem> FindRoute(std::string_view method, std::string_view target) {
  const std::size_t question = std::min(target.find('?'), target.size());
  const std::string_view path = target.substr(0, question);
  if (method == "HEAD") method = "GET";
  std::set<std::string> allowed;
  for (const Route& route : Routes()) {
    const auto values = MatchPath(route.path, path);
    if (!values) continue;
    allowed.emplace(route.method);
    if (route.method != method) continue;
    Call call{&route, "", "", {}};
    if (auto problem = ReadPath(*values, call)) return *std::move(problem);
    const std::string_view query =
        question < target.size() ? target.substr(question + 1) : std::string_view();
    if (auto problem = ReadQuery(query, call)) return *std::move(problem);
    return call;
  }
  if (allowed.empty()) {
    return MakeProblem("NoSuchRoute", "there is nothing at this path");
  }
  if (allowed.count("GET") > 0) allowed.insert("HEAD");
  const std::string methods = absl::StrJoin(allowed, ", ");
  Problem problem = MakeProblem("MethodNotAllowed", absl::StrCat("this path takes ", methods));
  problem.headers.emplace_back("Allow", methods);
  return problem;
}

}  // namespace starling::rest
