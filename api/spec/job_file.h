// SPDX-License-Identifier: Apache-2.0
// A whole TrainingJob as a document: from a user's file, from the store, and with overrides.
//
// Files are read strictly; stored objects carry what the API server adds to the metadata and a
// status that a newer controller may have written, so there only the spec is strict.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/spec/field_error.h"
#include "nlohmann/json_fwd.hpp"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {

// From a user's document. Metadata that only a server sets (uid, resourceVersion, ...) is passed
// over, so that the output of `get -o yaml` is a job file; so is the status, whatever it holds.
FieldErrors ReadJob(const nlohmann::json& document, v1alpha1::TrainingJob& out);

// From an object of the store or the API server: strict in the spec, lenient in all else.
FieldErrors ReadStoredJob(const nlohmann::json& object, v1alpha1::TrainingJob& out);

struct CheckedJob {
  v1alpha1::TrainingJob job;           // as it was written
  v1alpha1::TrainingJobSpec resolved;  // preset and defaults filled in
};

// ReadJob, Resolve and Validate in one: all errors of the first of them that finds any.
FieldErrors CheckJob(const nlohmann::json& document, CheckedJob& out);

// The frozen spec of a job, as a ConfigMap carries it to the pods: JSON text to message.
absl::StatusOr<v1alpha1::TrainingJobSpec> ReadResolvedSpec(std::string_view json_text);

// `--set path=value`: sets one field of a document before it is read. `path` is as errors name it
// (spec.stop.epochs, spec.dataset.train.csv.shape[0], metadata.labels[a/b]); `value` is the text of
// a string field as it stands, anything else is JSON. Parents are made as needed; setting a member
// of a union takes its other members out. InvalidArgument, with the path, if there is no such
// field.
absl::Status SetPath(nlohmann::json& document, std::string_view path, std::string_view value);

}  // namespace starling::spec
