// SPDX-License-Identifier: Apache-2.0
// Kubernetes' protobuf as it travels: bodies, lists, frames of watches, refusals.
//
// A body is the four bytes "k8s\0" and a message that names the object's kind and holds its bytes.
// A watch is a sequence of frames, each a length of four bytes (the highest first) and an event
// that holds such a body. Nothing here trusts what it is given: whatever is cut, too long or of
// another kind is an error that says so (Unavailable: nobody knows what the server meant).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/kube/kube_client.h"

namespace starling::kube {

inline constexpr const char* kProtobuf = "application/vnd.kubernetes.protobuf";

// The body of a request: `message` as an object of that version and kind.
std::string EncodeBody(std::string_view api_version, std::string_view kind, const Message& message);
std::string EncodeObject(const ResourceKind& kind, const Message& object);

// A body opened: the kind that it names and its bytes, not yet read.
struct Body {
  std::string kind;
  std::string raw;
};
absl::StatusOr<Body> OpenBody(std::string_view bytes);

// The object in a body. A body that says Status is the error that the Status tells.
absl::StatusOr<MessagePtr> DecodeObject(const ResourceKind& kind, std::string_view bytes);
absl::StatusOr<MessageList> DecodeList(const ResourceKind& kind, std::string_view bytes);
// Of a deletion: a Status without an error says that the object `key` is gone, and what its UID
// was.
absl::StatusOr<MessagePtr> DecodeDeleted(const ResourceKind& kind, const ObjectKey& key,
                                         std::string_view bytes);

// The error in a body; nothing if it holds anything else.
std::optional<absl::Status> DecodeStatus(std::string_view bytes);

// Puts frames together from pieces that are cut anywhere. Confined to one thread.
class FrameBuffer {
 public:
  // A frame that is longer than `longest` ends the stream, before any memory is taken for it.
  explicit FrameBuffer(std::size_t longest) : longest_(longest) {}

  void Clear() {
    pending_.clear();
    begin_ = 0;
  }
  void Add(std::string_view piece) { pending_.append(piece); }
  // The next whole frame; nothing: more is needed. Unavailable: it is too long.
  absl::StatusOr<std::optional<std::string>> Next();

 private:
  const std::size_t longest_;
  std::string pending_;
  std::size_t begin_ = 0;  // of what of `pending_` has not been given out
};

// The event in a frame; nothing for a type that is newer than we are. An ERROR is the error that it
// tells.
absl::StatusOr<std::optional<MessageEvent>> DecodeEvent(const ResourceKind& kind,
                                                        std::string_view frame);

}  // namespace starling::kube
