// SPDX-License-Identifier: Apache-2.0
// Messages of clients whose objects are JSON: converted at this door.
#include "controller/kube/kube_client.h"

#include <nlohmann/json.hpp>

#include "common/status/macros.h"
#include "controller/kube/message_json.h"
#include "controller/kube/messages.h"

namespace starling::kube {
namespace {

absl::StatusOr<MessagePtr> Converted(const ResourceKind& kind, absl::StatusOr<Json> object) {
  RETURN_IF_ERROR(object.status());
  return FromJson(kind, *object);
}

class ConvertedStream final : public MessageStream {
 public:
  ConvertedStream(const ResourceKind& kind, std::unique_ptr<WatchStream> inner)
      : kind_(kind), inner_(std::move(inner)) {}

  absl::StatusOr<std::optional<MessageEvent>> Next(absl::Duration timeout) override {
    ASSIGN_OR_RETURN(const std::optional<WatchEvent> event, inner_->Next(timeout));
    if (!event.has_value()) return std::optional<MessageEvent>();
    return std::optional<MessageEvent>({event->type, FromJson(kind_, *event->object)});
  }
  void Stop() override { inner_->Stop(); }

 private:
  const ResourceKind kind_;
  const std::unique_ptr<WatchStream> inner_;
};

}  // namespace

std::optional<WatchEventType> EventTypeOf(std::string_view name) {
  constexpr std::pair<std::string_view, WatchEventType> kTypes[] = {
      {"ADDED", WatchEventType::kAdded},
      {"MODIFIED", WatchEventType::kModified},
      {"DELETED", WatchEventType::kDeleted},
      {"BOOKMARK", WatchEventType::kBookmark}};
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  return std::nullopt;
}

absl::StatusOr<MessagePtr> KubeClient::GetMessage(const ResourceKind& kind, const ObjectKey& key) {
  RETURN_IF_ERROR(RequireMessages(kind));
  return Converted(kind, Get(kind, key));
}

absl::StatusOr<MessageList> KubeClient::ListMessages(const ResourceKind& kind, std::string_view ns,
                                                     const ListOptions& options) {
  RETURN_IF_ERROR(RequireMessages(kind));
  ASSIGN_OR_RETURN(ObjectList list, List(kind, ns, options));
  MessageList messages;
  messages.resource_version = std::move(list.resource_version);
  messages.continue_token = std::move(list.continue_token);
  messages.items.reserve(list.items.size());
  for (const Json& item : list.items) messages.items.push_back(FromJson(kind, item));
  return messages;
}

absl::StatusOr<std::unique_ptr<MessageStream>> KubeClient::WatchMessages(
    const ResourceKind& kind, std::string_view ns, const WatchOptions& options) {
  RETURN_IF_ERROR(RequireMessages(kind));
  ASSIGN_OR_RETURN(std::unique_ptr<WatchStream> inner, Watch(kind, ns, options));
  return std::make_unique<ConvertedStream>(kind, std::move(inner));
}

absl::StatusOr<MessagePtr> KubeClient::CreateMessage(const ResourceKind& kind,
                                                     const Message& object) {
  RETURN_IF_ERROR(RequireMessages(kind));
  return Converted(kind, Create(kind, ToJson(kind, object)));
}

absl::StatusOr<MessagePtr> KubeClient::CreateFromJson(const ResourceKind& kind,
                                                      const Json& object) {
  RETURN_IF_ERROR(RequireMessages(kind));
  return Converted(kind, Create(kind, object));
}

absl::StatusOr<MessagePtr> KubeClient::DeleteMessage(const ResourceKind& kind, const ObjectKey& key,
                                                     const DeleteOptions& options) {
  RETURN_IF_ERROR(RequireMessages(kind));
  return Converted(kind, Delete(kind, key, options));
}

}  // namespace starling::kube
