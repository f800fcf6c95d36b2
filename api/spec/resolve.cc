// SPDX-License-Identifier: Apache-2.0
#include "api/spec/resolve.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "api/spec/contract.h"
#include "api/spec/reader.h"
#include "common/json/json.h"
#include "common/status/check.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::json;

bool Present(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                             : reflection.HasField(message, &field);
}

// Whether the field that `path` names below the message ("workload.container") is present.
bool PresentAt(const Message& message, std::string_view path) {
  const std::size_t dot = std::min(path.find('.'), path.size());
  const FieldDescriptor* field = FindField(*message.GetDescriptor(), path.substr(0, dot));
  STARLING_CHECK(field != nullptr, "a default's rules name fields of the same message");
  if (!Present(message, *field)) return false;
  return dot == path.size() ||
         PresentAt(message.GetReflection()->GetMessage(message, field), path.substr(dot + 1));
}

// The defaults of all fields below a message type, each as a message with that field alone. Reading
// one takes longer than all the rest of what is done about a field, and they never change.
using Defaults = std::map<const FieldDescriptor*, std::unique_ptr<const Message>>;

std::unique_ptr<const Message> ReadDefault(const FieldDescriptor& field) {
  const auto value = json::Parse(RulesOf(field).default_value());
  STARLING_CHECK(value.ok(), field.full_name().c_str());
  std::unique_ptr<Message> read(google::protobuf::MessageFactory::generated_factory()
                                    ->GetPrototype(field.containing_type())
                                    ->New());
  const FieldErrors errors =
      ReadMessage(Json{{field.json_name(), *value}}, "", *read, {.check_required = false});
  STARLING_CHECK(errors.empty(), Format(errors).c_str());
  return read;
}

void ReadDefaults(const Descriptor& descriptor, std::set<const Descriptor*>& seen, Defaults& all) {
  if (!seen.insert(&descriptor).second) return;
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (!RulesOf(field).default_value().empty()) all[&field] = ReadDefault(field);
    if (field.message_type() != nullptr) ReadDefaults(*field.message_type(), seen, all);
  }
}

// Null: the field has none.
const Message* DefaultOf(const FieldDescriptor& field) {
  static const Defaults& known = *[] {
    auto* all = new Defaults();
    std::set<const Descriptor*> seen;
    ReadDefaults(*v1alpha1::TrainingJobSpec::descriptor(), seen, *all);
    return all;
  }();
  const auto found = known.find(&field);
  return found == known.end() ? nullptr : found->second.get();
}

void SetDefault(Message& message, const FieldDescriptor& field) {
  const Message* value = DefaultOf(field);
  if (value == nullptr || Present(message, field)) return;
  const auto& rules = RulesOf(field);
  const auto present = [&message](const std::string& path) { return PresentAt(message, path); };
  if (std::ranges::any_of(rules.default_unless(), present)) return;
  if (!rules.default_beside().empty() && !present(rules.default_beside())) return;
  message.MergeFrom(*value);
}

void FillDefaults(Message& message) {
  const Descriptor& descriptor = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  for (const OneofDescriptor* oneof : UnionsOf(descriptor)) {
    const std::string& member = RulesOf(*oneof).default_member();
    if (member.empty() || reflection.HasOneof(message, oneof)) continue;
    reflection.MutableMessage(&message, FindField(descriptor, member));
  }
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    SetDefault(message, field);
    if (KindOf(field) != Kind::kMessage || field.is_map()) continue;
    if (!field.is_repeated()) {
      if (Present(message, field)) FillDefaults(*reflection.MutableMessage(&message, &field));
      continue;
    }
    for (int j = 0; j < reflection.FieldSize(message, &field); ++j) {
      FillDefaults(*reflection.MutableRepeatedMessage(&message, &field, j));
    }
  }
}

// The one default that depends on another field: a job with parameter servers that does not say how
// many has one for each copy. The API server cannot fill it in, so it stays out of what is stored.
void AddServers(v1alpha1::TrainingJobSpec& spec) {
  if (!spec.exchange().has_parameter_server() || spec.replica_specs().has_parameter_server())
    return;
  const std::int64_t copies = spec.exchange().parameter_server().replication();
  spec.mutable_replica_specs()->mutable_parameter_server()->set_replicas(
      std::max<std::int64_t>(copies, 1));
}

}  // namespace

void Overlay(const Message& over, Message& base) {
  const Reflection& reflection = *over.GetReflection();
  std::vector<const FieldDescriptor*> present;
  reflection.ListFields(over, &present);
  for (const FieldDescriptor* field : present) {
    if (!field->is_repeated() && KindOf(*field) == Kind::kMessage) {
      Overlay(reflection.GetMessage(over, field), *reflection.MutableMessage(&base, field));
      continue;
    }
    // Swapping out of a copy is the one way to move any field by reflection.
    const std::unique_ptr<Message> copy(over.New());
    copy->CopyFrom(over);
    reflection.SwapFields(copy.get(), &base, {field});
  }
}

v1alpha1::TrainingJobSpec Resolve(const v1alpha1::TrainingJobSpec& given) {
  v1alpha1::TrainingJobSpec resolved = PresetSpec(given.preset());
  // Reproducible sums have an order of their own: the algorithm that a preset names would have no
  // effect. One that the file names is refused (techniques.cc).
  if (given.reproducible() && resolved.exchange().has_all_reduce()) {
    resolved.mutable_exchange()->mutable_all_reduce()->clear_algorithm();
  }
  Overlay(given, resolved);
  AddServers(resolved);
  FillDefaults(resolved);
  return resolved;
}

}  // namespace starling::spec
