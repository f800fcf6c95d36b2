// SPDX-License-Identifier: Apache-2.0
// What an API server's answer means, as a status with the server's own words.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/http/message.h"
#include "controller/kube/kube_client.h"

namespace starling::kube {

// Of an answer that is no success (or that is none because nobody understands it).
absl::Status StatusOfAnswer(const http::Response& answer);

// Of a metav1.Status, in whatever form it came.
struct ServerStatus {
  int http = 0;
  std::string reason;
  std::string message;
  // An update in the name of another UID is refused as an edit of the UID; here it is a conflict.
  bool about_the_uid = false;
};
absl::Status StatusOfServer(const ServerStatus& told);
absl::Status StatusOfObject(const Json& object);

// The JSON object in a successful answer, without managedFields. Unavailable: it is none, so nobody
// knows what happened.
absl::StatusOr<Json> ObjectOfAnswer(const http::Response& answer);

// The bytes of a successful answer in protobuf (protobuf_wire.h); Unavailable as above.
absl::StatusOr<std::string> ProtobufOfAnswer(http::Response answer);

// One JSON value from the server, within generous bounds.
absl::StatusOr<Json> ParseServerJson(std::string_view text);

}  // namespace starling::kube
