// SPDX-License-Identifier: Apache-2.0
// Our JSON of a message to the message, strictly: the one way in for everything users write.
//
// It knows the descriptor and the rules beside each field (options.proto), so a new field of the
// contract needs no code here. protobuf's own JsonStringToMessage is never used: it takes trailing
// commas, silent duplicates and enum numbers, and tells one mistake at a time.
//
// The form: camelCase names; 64-bit integers are numbers of at most 2^53; enum values are CamelCase
// without their prefix, the zero value has no name; durations as Go writes them (1h30m, 500ms);
// timestamps as RFC 3339; a raw_json field is any JSON object; null means "not given".
#pragma once

#include <string_view>

#include "api/spec/field_error.h"
#include "nlohmann/json_fwd.hpp"

namespace google::protobuf {
class Message;
}

namespace starling::spec {

struct ReadOptions {
  bool ignore_unknown = false;  // unknown fields and enum values are passed over
  bool check_rules = true;      // bounds, patterns, formats
  bool check_required = true;   // required fields and unions
};

// For what our own programs have written, perhaps a newer one: status, stored objects.
inline constexpr ReadOptions kLenient{
    .ignore_unknown = true, .check_rules = false, .check_required = false};

// Fills `out` (cleared first) from `value`; returns every error, with paths under `path` ("spec";
// "" at the top). `out` then holds what could be read.
FieldErrors ReadMessage(const nlohmann::json& value, std::string_view path,
                        google::protobuf::Message& out, const ReadOptions& options = {});

}  // namespace starling::spec
