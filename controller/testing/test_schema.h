// SPDX-License-Identifier: Apache-2.0
// A small checker of objects against the files in schemas/: what is wrong with a value, by path.
#pragma once

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace starling::scheduling {

inline void CheckSchema(const nlohmann::json& schema, const nlohmann::json& value,
                        const std::string& path, std::vector<std::string>& problems);

// `fields` maps names to schemas; what is not in it is unknown.
inline void CheckFields(const nlohmann::json& fields, const nlohmann::json& value,
                        const std::string& path, std::vector<std::string>& problems) {
  for (const auto& [name, member] : value.items()) {
    if (!fields.contains(name)) {
      problems.push_back(absl::StrCat(path, ".", name, ": unknown field"));
    } else {
      CheckSchema(fields[name], member, absl::StrCat(path, ".", name), problems);
    }
  }
  for (const auto& [name, schema] : fields.items()) {
    if (schema.value("required", false) && !value.contains(name)) {
      problems.push_back(absl::StrCat(path, ".", name, ": is missing"));
    }
  }
}

inline void CheckBounds(const nlohmann::json& schema, long long size, const std::string& path,
                        std::vector<std::string>& problems) {
  if (schema.contains("minimum") && size < schema["minimum"].get<long long>()) {
    problems.push_back(path + ": too small");
  }
  if (schema.contains("maximum") && size > schema["maximum"].get<long long>()) {
    problems.push_back(path + ": too large");
  }
}

inline void CheckText(const nlohmann::json& schema, const std::string& text,
                      const std::string& path, std::vector<std::string>& problems) {
  CheckBounds(schema, static_cast<long long>(text.size()), path, problems);
  if (schema.contains("pattern") &&
      !std::regex_match(text, std::regex(schema["pattern"].get<std::string>()))) {
    problems.push_back(path + ": does not match its pattern");
  }
  if (schema.contains("enum")) {
    bool known = false;
    for (const auto& choice : schema["enum"]) known |= choice == text;
    if (!known) problems.push_back(path + ": is none of the choices");
  }
}

inline void CheckSchema(const nlohmann::json& schema, const nlohmann::json& value,
                        const std::string& path, std::vector<std::string>& problems) {
  const std::string type = schema.value("type", "any");
  const std::string is = value.is_number_integer() ? "integer" : value.type_name();
  if (type == "any") return;
  if (type != is) {
    problems.push_back(path + ": must be " + type + ", is " + is);
  } else if (type == "integer") {
    CheckBounds(schema, value.get<long long>(), path, problems);
  } else if (type == "string") {
    CheckText(schema, value.get<std::string>(), path, problems);
  } else if (type == "array") {
    CheckBounds(schema, static_cast<long long>(value.size()), path, problems);
    for (std::size_t i = 0; i < value.size(); ++i) {
      CheckSchema(schema["items"], value[i], absl::StrCat(path, "[", i, "]"), problems);
    }
  } else if (type == "object" && schema.contains("fields")) {
    CheckFields(schema["fields"], value, path, problems);
  } else if (type == "object") {
    for (const auto& [name, member] : value.items()) {
      CheckSchema(schema["values"], member, absl::StrCat(path, ".", name), problems);
    }
  }
}

}  // namespace starling::scheduling
