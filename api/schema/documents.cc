// SPDX-License-Identifier: Apache-2.0
#include "api/schema/documents.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/rest/openapi.h"
#include "api/rest/rights.h"
#include "api/telemetry/metric_table.h"

namespace starling::schema {

std::map<std::string, std::string> GeneratedFiles() {
  std::map<std::string, std::string> files = {
      {"docs/reference/metrics.md", telemetry::MetricsPage()},
      {"docs/reference/openapi.json", OpenApiJson()},
      {"docs/reference/rest-rights.md", rest::RightsPage()},
      {"docs/reference/rest.md", rest::ReferencePage()},
      {"docs/reference/trainingjob.md", ReferencePage()},
      {"docs/reference/trainingtemplate.md", TemplateReferencePage()},
      {"python/starling/types.py", PythonTypes()}};
  for (const auto& [plural, crd] :
       {std::pair("trainingjobs", CrdYaml()), std::pair("trainingtemplates", TemplateCrdYaml()),
        std::pair("clustertrainingtemplates", ClusterTemplateCrdYaml())}) {
    files[absl::StrCat("crds/starling.dev_", plural, ".yaml")] = crd;
    files[absl::StrCat("charts/starling/files/starling.dev_", plural, ".yaml")] = crd;
  }
  return files;
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
