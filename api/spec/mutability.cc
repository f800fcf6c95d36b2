// SPDX-License-Identifier: Apache-2.0
#include "api/spec/mutability.h"

#include <string>

#include "api/spec/contract.h"
#include "api/spec/writer.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using google::protobuf::Message;
using google::protobuf::Reflection;

// Whether one field has the same value in both, compared in the form that users write.
bool SameField(const nlohmann::json& before, const nlohmann::json& after, const std::string& name) {
  const auto a = before.find(name), b = after.find(name);
  if (a == before.end() || b == after.end()) return (a == before.end()) == (b == after.end());
  return *a == *b;
}

// Of a suspended job only what is immutable for good counts.
void Compare(const Message& before, const Message& after, const std::string& path, bool suspended,
             FieldErrors& errors) {
  const Descriptor& descriptor = *before.GetDescriptor();
  const Reflection& reflection = *before.GetReflection();
  const nlohmann::json before_json = WriteMessage(before), after_json = WriteMessage(after);
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (RulesOf(field).mutable_while_running()) continue;
    if (SameField(before_json, after_json, field.json_name())) continue;
    const std::string field_path = JoinPath(path, field.json_name());
    // A union's member that comes or goes is itself the change; any other absent message is empty.
    const bool both = !field.is_repeated() && KindOf(field) == Kind::kMessage &&
                      (field.real_containing_oneof() == nullptr ||
                       (reflection.HasField(before, &field) && reflection.HasField(after, &field)));
    if (both) {
      Compare(reflection.GetMessage(before, &field), reflection.GetMessage(after, &field),
              field_path, suspended, errors);
    } else if (RulesOf(field).immutable()) {
      errors.push_back({field_path, "never changes; submit the job under another name"});
    } else if (!suspended) {
      errors.push_back({field_path,
                        "must not change while the job runs; suspend it first, or submit the job "
                        "under another name"});
    }
  }
}

}  // namespace

FieldErrors CheckChange(const v1alpha1::TrainingJobSpec& before,
                        const v1alpha1::TrainingJobSpec& after, bool suspended) {
  FieldErrors errors;
  Compare(before, after, "spec", suspended, errors);
  return errors;
}

}  // namespace starling::spec
