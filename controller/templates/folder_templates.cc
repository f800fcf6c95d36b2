// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "api/yaml/yaml.h"
#include "controller/kube/objects.h"
#include "controller/templates/templates.h"

namespace starling::templates {
namespace {

using kube::Json;

constexpr const char* kEndings[] = {".yaml", ".yml", ".json"};

struct ReadFiles {
  std::vector<std::pair<std::string, Json>> templates;  // with their files
  std::string wrong;                                    // the first file that cannot be read
};

bool IsTemplateFile(const std::filesystem::path& path) {
  return std::find(std::begin(kEndings), std::end(kEndings), path.extension()) !=
         std::end(kEndings);
}

std::vector<std::string> FilesIn(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (IsTemplateFile(entry.path())) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool IsTemplate(const Json& object) {
  const std::string kind = kube::StringAt(object, "/kind");
  return kube::StringAt(object, "/apiVersion") == kube::kTrainingTemplate.ApiVersion() &&
         (kind == spec::kTrainingTemplate || kind == spec::kClusterTrainingTemplate);
}

ReadFiles ReadAll(const std::string& path) {
  ReadFiles read;
  const auto note = [&read](std::string what) {
    if (read.wrong.empty()) read.wrong = std::move(what);
  };
  for (const std::string& file : FilesIn(path)) {
    absl::StatusOr<Json> object = yaml::ReadJobFile(file);
    if (!object.ok()) {
      note(std::string(object.status().message()));
    } else if (!IsTemplate(*object)) {
      note(file + ": is no TrainingTemplate or ClusterTrainingTemplate of starling.dev/v1alpha1");
    } else {
      read.templates.emplace_back(file, *std::move(object));
    }
  }
  return read;
}

bool IsFor(const Json& object, const std::string& ns) {
  const std::string own = kube::NamespaceOf(object);
  return kube::StringAt(object, "/kind") == spec::kClusterTrainingTemplate || own.empty() ||
         own == (ns.empty() ? "default" : ns);
}

auto PlaceOf(const Json& object) {
  return std::make_tuple(kube::StringAt(object, "/kind"), kube::NameOf(object));
}

}  // namespace

spec::FindTemplate Finder(std::shared_ptr<const Templates> templates) {
  return [templates = std::move(templates)](const spec::TemplateName& name) {
    return templates->Find(name);
  };
}

absl::StatusOr<Json> FolderTemplates::Find(const spec::TemplateName& name) const {
  const ReadFiles read = ReadAll(path_);
  const std::pair<std::string, Json>* found = nullptr;
  for (const auto& candidate : read.templates) {
    const Json& object = candidate.second;
    if (PlaceOf(object) != std::make_tuple(name.kind, name.name) || !IsFor(object, name.ns)) {
      continue;
    }
    if (found != nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(found->first, " and ", candidate.first,
                                                        " both hold it; take one of them away"));
    }
    found = &candidate;
  }
  if (found != nullptr) return found->second;
  return absl::NotFoundError(
      absl::StrCat("no file of ", path_, " holds it",
                   read.wrong.empty() ? "" : absl::StrCat("; one cannot be read: ", read.wrong)));
}

absl::StatusOr<std::vector<Json>> FolderTemplates::List(const std::string& ns) const {
  std::vector<Json> all;
  for (auto& [file, object] : ReadAll(path_).templates) {
    if (IsFor(object, ns)) all.push_back(std::move(object));
  }
  std::sort(all.begin(), all.end(),
            [](const Json& a, const Json& b) { return PlaceOf(a) < PlaceOf(b); });
  return all;
}

}  // namespace starling::templates
