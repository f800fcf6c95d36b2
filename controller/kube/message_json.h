// SPDX-License-Identifier: Apache-2.0
// Between a message of objects.proto and the JSON of the same object, as the API defines it.
//
// Where objects are stored as JSON (the embedded store, a request that carries a user's template)
// and read as messages. It follows the messages' descriptors: a new field needs no code here.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "controller/kube/kube_client.h"

namespace starling::kube {

// What of `json` the message has fields for. Total: what is of another type, or no number, time or
// base64 where one belongs, reads as absent.
void FromJson(const Json& json, Message& message);
template <typename M>
M FromJson(const Json& json) {
  M message;
  FromJson(json, message);
  return message;
}
// For kinds that have messages only.
std::shared_ptr<const google::protobuf::Message> FromJson(const ResourceKind& kind,
                                                          const Json& json);

// The fields that are present; without apiVersion and kind, which a message does not have.
Json ToJson(const Message& message);
// With them.
Json ToJson(const ResourceKind& kind, const Message& message);

}  // namespace starling::kube
