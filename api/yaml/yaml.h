// SPDX-License-Identifier: Apache-2.0
// Job files to JSON values: YAML as its core schema means it, and nothing of YAML that surprises.
//
// yaml-cpp parses a text of bounded size, event by event, and parsing ends at the first event that
// is too deep, one too many, or could mean two things: anchors and aliases, tags, merge keys,
// duplicate keys, several documents. Only true, false, null and decimal numbers are not text: `no`
// is a string. Only the CLI reads YAML; servers take JSON.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "nlohmann/json_fwd.hpp"

namespace starling::yaml {

// As large as an object may be that etcd stores, less some room. yaml-cpp needs up to half a second
// for a megabyte of brackets before it shows us the first one.
inline constexpr json::Limits kLimits{.bytes = 1U << 20U};

// InvalidArgument, with line and column, for whatever is refused, or is beyond kLimits.
absl::StatusOr<nlohmann::json> Parse(std::string_view text);

// The document in a file: strict JSON if its name ends in .json, else YAML. NotFound or
// InvalidArgument, beginning with the file's name. "-" is standard input.
absl::StatusOr<nlohmann::json> ReadJobFile(const std::string& path);

// A value as YAML text for people, keys sorted, ending in a newline; Parse gives the value back.
std::string Write(const nlohmann::json& value);

}  // namespace starling::yaml
