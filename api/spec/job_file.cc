// SPDX-License-Identifier: Apache-2.0
#include "api/spec/job_file.h"

#include "api/spec/reader.h"
#include "api/spec/resolve.h"
#include "api/spec/validate.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using Json = nlohmann::json;

// Metadata that a server sets and a user's file may repeat.
constexpr const char* kServerMetadata[] = {
    "uid",           "resourceVersion", "generation", "creationTimestamp",
    "managedFields", "selfLink",        "finalizers"};

}  // namespace

FieldErrors ReadJob(const Json& document, v1alpha1::TrainingJob& out) {
  if (!document.is_object()) return ReadMessage(document, "", out);
  Json written = document;
  written.erase("status");
  if (const auto metadata = written.find("metadata");
      metadata != written.end() && metadata->is_object()) {
    for (const char* name : kServerMetadata) metadata->erase(name);
  }
  return ReadMessage(written, "", out);
}

FieldErrors ReadStoredJob(const Json& object, v1alpha1::TrainingJob& out) {
  FieldErrors errors = ReadMessage(object, "", out, kLenient);
  if (!errors.empty()) return errors;
  const auto spec = object.find("spec");
  if (spec == object.end()) return {{"spec", "is required and missing"}};
  return ReadMessage(*spec, "spec", *out.mutable_spec());
}

FieldErrors CheckJob(const Json& document, CheckedJob& out) {
  FieldErrors errors = ReadJob(document, out.job);
  if (!errors.empty()) return errors;
  out.resolved = Resolve(out.job.spec());
  return Validate(out.resolved);
}

absl::StatusOr<v1alpha1::TrainingJobSpec> ReadResolvedSpec(std::string_view json_text) {
  ASSIGN_OR_RETURN(const Json value, json::Parse(json_text));
  v1alpha1::TrainingJobSpec spec;
  RETURN_IF_ERROR(ToStatus(ReadMessage(value, "spec", spec)));
  return spec;
}

}  // namespace starling::spec
