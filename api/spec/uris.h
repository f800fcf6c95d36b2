// SPDX-License-Identifier: Apache-2.0
// The places that a job names: checked for their form, and made absolute where the job starts.
//
// Only files can be read so far: a path, or file:///path. Another scheme is added here first.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "api/spec/field_error.h"

namespace google::protobuf {
class Message;
}

namespace starling::spec {

// The path that a URI names: itself, or what follows file:// with %20 and the like decoded.
// InvalidArgument for other schemes, other hosts and control characters, with the remedy.
absl::StatusOr<std::string> PathOfUri(std::string_view uri);

struct UriBases {
  std::filesystem::path job_folder;         // of the job file; empty if it has none
  std::filesystem::path working_directory;  // absolute
  // Whether there is something at a path; by default the file system is asked.
  std::function<bool(const std::filesystem::path&)> exists = nullptr;
};

// Turns every field with format "uri" anywhere in `message` into an absolute path. A relative one
// starts at the job file's folder if it exists there, else at the working directory. URIs that
// PathOfUri refuses stay as they are (Validate names them).
void MakeUrisAbsolute(google::protobuf::Message& message, const UriBases& bases);

// One error for each relative path among the fields with format "uri" of `message`, which stands at
// `path`: for whoever takes a job without knowing from which folder it came.
FieldErrors CheckUrisAbsolute(const google::protobuf::Message& message, std::string_view path);

}  // namespace starling::spec
