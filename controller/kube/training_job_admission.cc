// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/training_job_admission.h"

#include <nlohmann/json.hpp>

#include "api/spec/contract.h"
#include "api/spec/job_file.h"
#include "api/spec/mutability.h"
#include "api/spec/resolve.h"
#include "api/spec/validate.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

constexpr std::size_t kLongestName = 40;  // its pods' names must be legal too

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

spec::FieldErrors Check(const AdmissionRequest& request) {
  const std::string name = NameOf(request.object);
  if (name.size() > kLongestName) {
    return {
        {"metadata.name", "must have at most 40 characters, so that its pods' names are legal"}};
  }
  v1alpha1::TrainingJob job;
  spec::FieldErrors errors = spec::ReadStoredJob(request.object, job);
  if (!errors.empty()) return errors;
  const v1alpha1::TrainingJobSpec resolved = spec::Resolve(job.spec());
  errors = spec::Validate(resolved);
  if (!errors.empty() || request.old_object == nullptr) return errors;
  v1alpha1::TrainingJob old;
  if (!spec::ReadStoredJob(*request.old_object, old).empty()) return {};  // nothing to compare with
  return spec::CheckChange(spec::Resolve(old.spec()), resolved, old.spec().run_policy().suspend());
}

}  // namespace

absl::Status AdmitTrainingJob(const AdmissionRequest& request) {
  if (request.object.contains("spec")) {
    FillSchemaDefaults(*v1alpha1::TrainingJobSpec::descriptor(), request.object["spec"]);
  }
  return spec::ToStatus(Check(request));
}

}  // namespace starling::kube
