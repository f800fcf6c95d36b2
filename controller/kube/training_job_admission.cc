// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/training_job_admission.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "api/spec/admission.h"
#include "api/spec/contract.h"
#include "common/status/macros.h"
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

absl::Status Admit(const AdmissionRequest& request, const spec::FindTemplate& find) {
  if (request.object.contains("spec")) {
    FillSchemaDefaults(*v1alpha1::TrainingJobSpec::descriptor(), request.object["spec"]);
  }
  RETURN_IF_ERROR(spec::ToStatus(spec::ApplyTemplate(request.object, request.old_object, find)));
  return spec::ToStatus(spec::CheckAdmission(request.object, request.old_object));
}

}  // namespace

Admission AdmitTrainingJobs(spec::FindTemplate find) {
  return [find = std::move(find)](const AdmissionRequest& request) { return Admit(request, find); };
}

absl::Status AdmitTrainingJob(const AdmissionRequest& request) {
  return Admit(request, [](const spec::TemplateName&) {
    return absl::NotFoundError("there are no templates here");
  });
}

}  // namespace starling::kube
