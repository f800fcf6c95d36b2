// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/training_job_admission.h"

#include <nlohmann/json.hpp>

#include "api/spec/admission.h"
#include "api/spec/contract.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::kube {
namespace {

// Fills in what the schema gives a default, and nothing else: the rest may come from a preset.
void FillSchemaDefaults(const google::protobuf::Descriptor& message, Json& value) {
  if (!value.is_object()) return;
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    const v1alpha1::FieldRules& rules = spec::RulesOf(field);
    if (!rules.schema_default()) continue;
    Json& member = value[field.json_name()];
    if (member.is_null()) member = Json::parse(rules.default_value(), nullptr, false);
    if (field.message_type() != nullptr) FillSchemaDefaults(*field.message_type(), member);
  }
}

}  // namespace

absl::Status AdmitTrainingJob(const AdmissionRequest& request) {
  if (request.object.contains("spec")) {
    FillSchemaDefaults(*v1alpha1::TrainingJobSpec::descriptor(), request.object["spec"]);
  }
  return spec::ToStatus(spec::CheckAdmission(request.object, request.old_object));
}

}  // namespace starling::kube
