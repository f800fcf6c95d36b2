// SPDX-License-Identifier: Apache-2.0
// Objects of Kubernetes' own kinds as messages (api/proto/kubernetes/objects.proto): which kinds
// have one, and the parts that all of them share.
//
//   ASSIGN_OR_RETURN(const auto pod, kube::Read<kubernetes::Pod>(client, {"default", "a"}));
//   if (kube::IsBeingDeleted(*pod)) ...
//
// A message is a part of its object, so it is never written over one: see objects.proto. To add a
// kind: its message there, a line in the table of messages.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/kube/kube_client.h"
#include "kubernetes/objects.pb.h"

namespace starling::kube {

// An empty object of that kind; null: objects of this kind are JSON here.
const Message* PrototypeOf(const ResourceKind& kind);
std::unique_ptr<Message> NewMessage(const ResourceKind& kind);  // the same, to be filled

// InvalidArgument, naming the kind, if it has none.
absl::Status RequireMessages(const ResourceKind& kind);

// The kind whose objects are such messages.
const ResourceKind& KindOf(const Message& prototype);

// The metadata that each of these messages has as its first field.
const kubernetes::ObjectMeta& MetadataOf(const Message& object);
kubernetes::ObjectMeta& MutableMetadataOf(Message& object);

const std::string& NameOf(const Message& object);
const std::string& NamespaceOf(const Message& object);
const std::string& UidOf(const Message& object);
const std::string& ResourceVersionOf(const Message& object);
ObjectKey KeyOf(const Message& object);
std::string LabelOf(const Message& object, std::string_view name);  // empty: there is none
std::string AnnotationOf(const Message& object, std::string_view name);
bool IsBeingDeleted(const Message& object);
// UID of the owner that controls the object; empty: none.
std::string ControllerUidOf(const Message& object);

absl::Time ToTime(const kubernetes::Time& time);
absl::Time ToTime(const kubernetes::MicroTime& time);
void SetTime(kubernetes::Time* stamp, absl::Time time);
void SetTime(kubernetes::MicroTime* stamp, absl::Time time);

// Of a pod or a node; null: there is no such condition.
template <typename Object>
const kubernetes::Condition* FindCondition(const Object& object, std::string_view type) {
  for (const kubernetes::Condition& condition : object.status().conditions()) {
    if (condition.type() == type) return &condition;
  }
  return nullptr;
}
template <typename Object>
bool IsConditionTrue(const Object& object, std::string_view type) {
  const kubernetes::Condition* condition = FindCondition(object, type);
  return condition != nullptr && condition->status() == "True";
}

// KubeClient's reads with the type that the caller knows.
template <typename M>
absl::StatusOr<std::shared_ptr<const M>> Read(KubeClient& client, const ObjectKey& key) {
  absl::StatusOr<MessagePtr> object = client.GetMessage(KindOf(M::default_instance()), key);
  if (!object.ok()) return object.status();
  return std::static_pointer_cast<const M>(*std::move(object));
}
template <typename M>
absl::StatusOr<std::vector<std::shared_ptr<const M>>> ReadAll(KubeClient& client,
                                                              std::string_view ns,
                                                              const Selection& selection) {
  absl::StatusOr<MessageList> list =
      client.ListMessages(KindOf(M::default_instance()), ns, {selection, 0, ""});
  if (!list.ok()) return list.status();
  std::vector<std::shared_ptr<const M>> objects;
  objects.reserve(list->items.size());
  for (MessagePtr& item : list->items) {
    objects.push_back(std::static_pointer_cast<const M>(std::move(item)));
  }
  return objects;
}

}  // namespace starling::kube
