// SPDX-License-Identifier: Apache-2.0
// Which fields of an object are kept, as a table, and the two places where the rest is dropped.
//
// Most of what an API server sends of an object nobody here reads: dropped from its text before it
// is parsed, it costs a tenth; dropped from a parsed object, it takes no memory. Both follow the
// same table. To keep another field, add its line to the table of its kind (controller/runtime).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace starling::kube {

struct KeptField {
  std::string_view name;  // "x/*": all fields whose name begins with "x/"
  // Of its value, or of each item if that is a list; empty: all of it.
  std::span<const KeptField> inner = {};
};
using KeptFields = std::span<const KeptField>;

// What `fields` keep of an object; anything but an object stays as it is.
nlohmann::json KeepFields(const nlohmann::json& object, KeptFields fields);

// The same of an answer's JSON text: of the object that it is, of each item of a list, and of the
// object of a watch event. What a list says of itself and what a Status says is kept. Text that was
// cut, or is not JSON where it is kept, comes back unchanged; what is dropped is not checked.
std::string KeepFieldsOfAnswer(std::string_view text, KeptFields fields);

}  // namespace starling::kube
