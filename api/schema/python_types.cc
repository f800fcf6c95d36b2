// SPDX-License-Identifier: Apache-2.0
// The messages of REST as Python's TypedDicts: the schemas of the OpenAPI document in other words.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "api/schema/documents.h"
#include "nlohmann/json.hpp"

namespace starling::schema {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kWidth = 99;  // of a line

constexpr const char* kPythonIntroduction = R"(# SPDX-License-Identifier: Apache-2.0
"""The messages of Starling's REST interface as types: JSON objects that a type checker understands.

Generated from api/proto and api/rest by `make generate`; docs/reference/trainingjob.md and
docs/reference/rest.md describe the same. A key that a class does not require may be absent.
"""
from __future__ import annotations

from typing import Any, Literal, TypedDict
)";

// Text as comment lines that begin with `indent`.
std::string Comment(const std::string& text, const std::string& indent) {
  std::string lines;
  std::string line;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    if (!line.empty() && indent.size() + 2 + line.size() + 1 + word.size() > kWidth) {
      absl::StrAppend(&lines, indent, "# ", line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  if (!line.empty()) absl::StrAppend(&lines, indent, "# ", line, "\n");
  return lines;
}

std::string Capitalised(std::string name) {
  name[0] = absl::ascii_toupper(static_cast<unsigned char>(name[0]));
  return name;
}

bool IsKeyword(const std::string& key) {
  static const auto& words = *new std::set<std::string>{
      "and",  "as",    "assert", "class",  "continue", "def",    "del",    "else",  "except",
      "for",  "from",  "if",     "in",     "is",       "lambda", "import", "not",   "or",
      "pass", "raise", "try",    "global", "while",    "with",   "yield",  "return"};
  return words.contains(key);
}

// Writes classes one after the other; the unnamed objects within an object get names of their own
// (`errors` of Problem: ProblemErrors), and stand before it.
class PythonWriter {
 public:
  std::string OfSchema(const std::string& name, const Json& schema) {
    const Json properties = schema.value("properties", Json::object());
    const std::string comment = Comment(schema.value("description", ""), "");
    if (properties.empty()) return absl::StrCat("\n\n", comment, name, " = dict[str, Any]\n");
    std::set<std::string> required;
    for (const Json& key : schema.value("required", Json::array())) required.insert(key);
    std::string text;
    std::string needed;
    std::string optional;
    std::string keywords;  // keys that cannot stand in a class; none of them is required
    for (const auto& [key, property] : properties.items()) {
      const std::string type = TypeOf(name + Capitalised(key), property, text);
      const std::string said = property.value("description", "");
      if (IsKeyword(key)) {
        absl::StrAppend(&keywords, Comment(said, "        "), "        \"", key, "\": \"", type,
                        "\",\n");
      } else {
        absl::StrAppend(required.contains(key) ? &needed : &optional, Comment(said, "    "), "    ",
                        key, ": ", type, "\n");
      }
    }
    std::vector<std::string> bases;
    if (!keywords.empty()) {
      bases.push_back(absl::StrCat("_", name, "Keywords"));
      absl::StrAppend(&text, "\n\n", bases.back(), " = TypedDict(\n    \"", bases.back(),
                      "\",\n    {\n", keywords, "    },\n    total=False,\n)\n");
    }
    if (!needed.empty() && !optional.empty()) {
      bases.push_back(absl::StrCat("_", name, "Required"));
      absl::StrAppend(&text, "\n\nclass ", bases.back(), "(TypedDict):\n", needed);
    }
    if (bases.empty()) bases.emplace_back("TypedDict");
    if (!optional.empty()) bases.emplace_back("total=False");
    return absl::StrCat(text, "\n\n", comment, "class ", name, "(", absl::StrJoin(bases, ", "),
                        "):\n", optional.empty() ? needed : optional);
  }

 private:
  // `name` is that of an unnamed object there.
  std::string TypeOf(const std::string& name, const Json& schema, std::string& before) {
    if (schema.contains("$ref")) {
      const std::vector<std::string> parts = absl::StrSplit(schema["$ref"].get<std::string>(), '/');
      return parts.back();
    }
    if (schema.contains("enum")) {
      std::vector<std::string> values;
      for (const Json& value : schema["enum"]) values.push_back(value.dump());
      return absl::StrCat("Literal[", absl::StrJoin(values, ", "), "]");
    }
    static const auto& plain = *new std::map<std::string, std::string>{
        {"string", "str"}, {"integer", "int"}, {"number", "float"}, {"boolean", "bool"}};
    const std::string type = schema.value("type", "");
    if (const auto found = plain.find(type); found != plain.end()) return found->second;
    if (type == "array") return absl::StrCat("list[", TypeOf(name, schema["items"], before), "]");
    if (schema.contains("properties")) {
      if (made_.insert(name).second) before += OfSchema(name, schema);
      return name;
    }
    const Json values = schema.value("additionalProperties", Json());
    return absl::StrCat("dict[str, ", values.is_object() ? TypeOf(name, values, before) : "Any",
                        "]");
  }

  std::set<std::string> made_;
};

}  // namespace

std::string PythonTypes() {
  PythonWriter writer;
  std::string text = kPythonIntroduction;
  const Json document = Json::parse(OpenApiJson());
  for (const auto& [name, schema] : document["components"]["schemas"].items()) {
    text += writer.OfSchema(name, schema);
  }
  return text;
}

}  // namespace starling::schema
