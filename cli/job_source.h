// SPDX-License-Identifier: Apache-2.0
// From a job file to the object that is stored: read, overridden, checked, made absolute.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "api/spec/template.h"
#include "controller/kube/kube_client.h"

namespace starling::cli {

// The annotation that keeps the spec as the file gave it, to tell whether the file has changed.
inline constexpr std::string_view kLastAppliedSpec = "starling.dev/last-applied-spec";

struct JobSource {
  std::string file;                    // "-": standard input
  std::vector<std::string> settings;   // --set, path=value
  std::string ns;                      // -n; empty: the file's
  bool check_data = true;              // look at the data too
  std::string default_ns = "default";  // where neither -n nor the file says
  bool relative_uris = false;          // they stay as they are: they begin in the image
  bool remember_spec = true;           // in the annotation; server-side apply needs none
  spec::FindTemplate find = nullptr;   // null: whoever takes the job knows the templates
};

struct LoadedJob {
  kube::Json object;    // the TrainingJob to create: as written, absolute URIs, the annotation
  kube::Json resolved;  // its spec with template, preset and defaults filled in
};

// InvalidArgument: everything that is wrong, one field a line.
absl::StatusOr<LoadedJob> LoadJob(const JobSource& source);

// Whether two specs mean the same job: preset and defaults filled in, suspension aside.
bool SameMeaning(const kube::Json& spec, const kube::Json& other);

}  // namespace starling::cli
