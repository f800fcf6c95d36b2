// SPDX-License-Identifier: Apache-2.0
#include "api/spec/admission.h"

#include <string>

#include "api/spec/job_file.h"
#include "api/spec/mutability.h"
#include "api/spec/resolve.h"
#include "api/spec/template.h"
#include "api/spec/validate.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestName = 40;  // its pods' names must be legal too

const Json* Member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

bool SameSpec(const Json& object, const Json& old) {
  const Json* now = Member(object, "spec");
  const Json* before = Member(old, "spec");
  return now != nullptr && before != nullptr && *now == *before;
}

}  // namespace

FieldErrors CheckAdmission(const Json& object, const Json* old) {
  if (old != nullptr && SameSpec(object, *old)) return {};
  const Json* metadata = Member(object, "metadata");
  const Json* name = metadata == nullptr ? nullptr : Member(*metadata, "name");
  if (name != nullptr && name->is_string() &&
      name->get_ref<const std::string&>().size() > kLongestName) {
    return {
        {"metadata.name", "must have at most 40 characters, so that its pods' names are legal"}};
  }
  v1alpha1::TrainingJob job;
  FieldErrors errors = ReadStoredJob(object, job);
  if (!errors.empty()) return errors;
  const v1alpha1::TrainingJobSpec resolved = Resolve(job.spec());
  errors = Validate(resolved);
  if (errors.empty()) errors = CheckBounds(object, resolved);
  if (!errors.empty() || old == nullptr) return errors;
  v1alpha1::TrainingJob before;
  if (!ReadStoredJob(*old, before).empty()) return {};  // nothing to compare with
  return CheckChange(Resolve(before.spec()), resolved, before.spec().run_policy().suspend());
}

}  // namespace starling::spec
