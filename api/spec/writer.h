// SPDX-License-Identifier: Apache-2.0
// A message to our JSON of it: the inverse of reader.h, for store, ConfigMap, REST and terminal.
#pragma once

#include "nlohmann/json_fwd.hpp"

namespace google::protobuf {
class Message;
}

namespace starling::spec {

// Present fields only. A number that JSON does not have (NaN, infinity) is left out, and so is an
// enum's zero value. Repeated fields and maps are left out when empty.
nlohmann::json WriteMessage(const google::protobuf::Message& message);

}  // namespace starling::spec
