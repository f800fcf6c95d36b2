// SPDX-License-Identifier: Apache-2.0
#include "api/schema/documents.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "api/rest/openapi.h"
#include "api/rest/rights.h"
#include "api/telemetry/metric_table.h"

namespace starling::schema {

std::map<std::string, std::string> GeneratedFiles() {
  const std::string crd = CrdYaml();
  return {{"crds/starling.dev_trainingjobs.yaml", crd},
          {"charts/starling/files/starling.dev_trainingjobs.yaml", crd},
          {"docs/reference/metrics.md", telemetry::MetricsPage()},
          {"docs/reference/openapi.json", OpenApiJson()},
          {"docs/reference/rest-rights.md", rest::RightsPage()},
          {"docs/reference/rest.md", rest::ReferencePage()},
          {"docs/reference/trainingjob.md", ReferencePage()},
          {"python/starling/types.py", PythonTypes()}};
}

absl::Status WriteGeneratedFiles(const std::string& root) {
  for (const auto& [name, text] : GeneratedFiles()) {
    const std::filesystem::path path = std::filesystem::path(root) / name;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    std::ofstream file(path, std::ios::binary);
    file << text << std::flush;
    if (error || !file) {
      return absl::UnavailableError(absl::StrCat(path.string(), ": cannot be written"));
    }
  }
  return absl::OkStatus();
}

}  // namespace starling::schema
