// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/messages.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace starling::kube {
namespace {

struct Row {
  const ResourceKind* kind;
  const Message* prototype;
};

const std::vector<Row>& Table() {
  static const auto& table = *new std::vector<Row>{
      {&kPod, &kubernetes::Pod::default_instance()},
      {&kNode, &kubernetes::Node::default_instance()},
      {&kConfigMap, &kubernetes::ConfigMap::default_instance()},
      {&kSecret, &kubernetes::Secret::default_instance()},
      {&kService, &kubernetes::Service::default_instance()},
      {&kEndpointSlice, &kubernetes::EndpointSlice::default_instance()},
      {&kPodDisruptionBudget, &kubernetes::PodDisruptionBudget::default_instance()},
      {&kEvent, &kubernetes::Event::default_instance()},
      {&kLease, &kubernetes::Lease::default_instance()}};
  return table;
}

// Each of these messages has its metadata first.
const google::protobuf::FieldDescriptor* MetadataFieldOf(const Message& object) {
  return object.GetDescriptor()->field(0);
}

template <typename Stamp>
absl::Time TimeOf(const Stamp& stamp) {
  return absl::FromUnixSeconds(stamp.seconds()) + absl::Nanoseconds(stamp.nanos());
}

template <typename Stamp>
void Set(Stamp* stamp, absl::Time time) {
  const std::int64_t seconds = absl::ToUnixSeconds(time);
  stamp->set_seconds(seconds);
  stamp->set_nanos(
      static_cast<std::int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

template <typename Map>
std::string ValueIn(const Map& map, std::string_view name) {
  const auto found = map.find(std::string(name));
  return found == map.end() ? std::string() : found->second;
}

}  // namespace

const Message* PrototypeOf(const ResourceKind& kind) {
  for (const Row& row : Table()) {
    if (*row.kind == kind) return row.prototype;
  }
  return nullptr;
}

absl::Status RequireMessages(const ResourceKind& kind) {
  if (PrototypeOf(kind) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(kind.plural), " have no message here; their objects are JSON"));
}

std::unique_ptr<Message> NewMessage(const ResourceKind& kind) {
  const Message* prototype = PrototypeOf(kind);
  return std::unique_ptr<Message>(prototype == nullptr ? nullptr : prototype->New());
}

const ResourceKind& KindOf(const Message& prototype) {
  for (const Row& row : Table()) {
    if (row.prototype->GetDescriptor() == prototype.GetDescriptor()) return *row.kind;
  }
  std::abort();  // a message of the table's is all that a caller can name
}

const kubernetes::ObjectMeta& MetadataOf(const Message& object) {
  return static_cast<const kubernetes::ObjectMeta&>(
      object.GetReflection()->GetMessage(object, MetadataFieldOf(object)));
}

kubernetes::ObjectMeta& MutableMetadataOf(Message& object) {
  return static_cast<kubernetes::ObjectMeta&>(
      *object.GetReflection()->MutableMessage(&object, MetadataFieldOf(object)));
}

const std::string& NameOf(const Message& object) { return MetadataOf(object).name(); }
const std::string& NamespaceOf(const Message& object) { return MetadataOf(object).ns(); }
const std::string& UidOf(const Message& object) { return MetadataOf(object).uid(); }
const std::string& ResourceVersionOf(const Message& object) {
  return MetadataOf(object).resource_version();
}
ObjectKey KeyOf(const Message& object) { return {NamespaceOf(object), NameOf(object)}; }

std::string LabelOf(const Message& object, std::string_view name) {
  return ValueIn(MetadataOf(object).labels(), name);
}
std::string AnnotationOf(const Message& object, std::string_view name) {
  return ValueIn(MetadataOf(object).annotations(), name);
}
bool IsBeingDeleted(const Message& object) { return MetadataOf(object).has_deletion_timestamp(); }

std::string ControllerUidOf(const Message& object) {
  for (const kubernetes::OwnerReference& owner : MetadataOf(object).owner_references()) {
    if (owner.controller()) return owner.uid();
  }
  return "";
}

absl::Time ToTime(const kubernetes::Time& time) { return TimeOf(time); }
absl::Time ToTime(const kubernetes::MicroTime& time) { return TimeOf(time); }
void SetTime(kubernetes::Time* stamp, absl::Time time) { Set(stamp, time); }
void SetTime(kubernetes::MicroTime* stamp, absl::Time time) { Set(stamp, time); }

}  // namespace starling::kube
