// SPDX-License-Identifier: Apache-2.0
// Job files to JSON values: YAML as its core schema means it, and nothing of YAML that surprises.
//
// yaml-cpp parses; before it sees the text, size and nesting are bounded, and afterwards everything
// that could mean two things is refused: anchors and aliases, tags, merge keys, duplicate keys,
// several documents. Only true, false, null and decimal numbers are not text: `no` is a string.
// Only the CLI reads YAML; servers take JSON.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "nlohmann/json_fwd.hpp"

namespace starling::yaml {

// InvalidArgument, with line and column, for whatever is refused.
absl::StatusOr<nlohmann::json> Parse(std::string_view text, const json::Limits& limits = {});

// The document in a file: strict JSON if its name ends in .json, else YAML. NotFound or
// InvalidArgument, beginning with the file's name. "-" is standard input.
absl::StatusOr<nlohmann::json> ReadJobFile(const std::string& path);

// A value as YAML text for people, keys sorted, ending in a newline; Parse gives the value back.
std::string Write(const nlohmann::json& value);

}  // namespace starling::yaml
