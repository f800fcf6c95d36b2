// SPDX-License-Identifier: Apache-2.0
#include "cli/home.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"

namespace starling::cli {

std::string Home::FolderOf(const kube::Json& job) const {
  return resources::JobFolder(Jobs(),
                              {kube::NamespaceOf(job), kube::NameOf(job), kube::UidOf(job)});
}

std::string Home::RestUrl() const {
  std::ifstream file(ControllerReady());
  std::stringstream text;
  text << file.rdbuf();
  const kube::Json ready = kube::Json::parse(text.str(), nullptr, false);
  return ready.is_object() ? kube::StringAt(ready, "/restUrl") : "";
}

absl::Status Home::Create(const std::string& path) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(path, error);
  if (error) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be created: ", error.message(),
                                                    "; choose another with STARLING_HOME"));
  }
  if (made) ::chmod(path.c_str(), 0700);
  return absl::OkStatus();
}

absl::StatusOr<Home> FindHome(std::string_view given, const EnvironmentReader& environment) {
  std::string path(given);
  if (path.empty()) path = environment("STARLING_HOME");
  if (path.empty()) {
    const std::string state = environment("XDG_STATE_HOME");
    if (!state.empty() && state.front() == '/') path = state + "/starling";
  }
  if (path.empty() && !environment("HOME").empty()) {
    path = environment("HOME") + "/.local/state/starling";
  }
  if (path.empty()) {
    return absl::InvalidArgumentError(
        "neither STARLING_HOME nor HOME is set: say with --home where Starling may keep its state");
  }
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return Home((error ? std::filesystem::path(path) : absolute).lexically_normal().string());
}

}  // namespace starling::cli
