// SPDX-License-Identifier: Apache-2.0
// The places that a job names: checked for their form, and made absolute where the job starts.
//
// Which places there are is common/storage/place.h's to say; which of them a field may name, its
// format: one table (uris.cc), to which a new kind of place is added.
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

// "a path or file:///path": what a field of this format may name. Empty: it is no format of URIs.
std::string_view PlacesOf(std::string_view format);

// OK, or INVALID_ARGUMENT with the remedy, of a field of such a format.
absl::Status CheckUri(std::string_view format, std::string_view uri);

struct UriBases {
  std::filesystem::path job_folder;         // of the job file; empty if it has none
  std::filesystem::path working_directory;  // absolute
  // Whether there is something at a path; by default the file system is asked.
  std::function<bool(const std::filesystem::path&)> exists = nullptr;
};

// Turns every field that names a file, anywhere in `message`, into an absolute path. A relative one
// starts at the job file's folder if it exists there, else at the working directory. URIs that
// PathOfUri refuses stay as they are (Validate names them).
void MakeUrisAbsolute(google::protobuf::Message& message, const UriBases& bases);

// One error for each relative path among the fields of `message` that name places, which stands at
// `path`: for whoever takes a job without knowing from which folder it came.
FieldErrors CheckUrisAbsolute(const google::protobuf::Message& message, std::string_view path);

}  // namespace starling::spec
