// SPDX-License-Identifier: Apache-2.0
// The folder in which everything local lies, and what is where in it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/kube/kube_client.h"

namespace starling::cli {

class Home {
 public:
  explicit Home(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string Store() const { return path_ + "/store.db"; }
  std::string ControllerLock() const { return path_ + "/controller.lock"; }
  std::string ControllerReady() const { return path_ + "/controller.json"; }
  std::string ApiToken() const { return path_ + "/api.token"; }
  std::string RestUrl() const;  // of the control plane that is up, or was; empty: never
  std::string ControllerLog() const { return path_ + "/controller.log"; }
  std::string Templates() const { return path_ + "/templates"; }
  std::string Jobs() const { return path_ + "/jobs"; }
  std::string History() const { return path_ + "/history"; }
  std::string HistoryFile() const { return path_ + "/history.db"; }
  std::string FolderOf(const kube::Json& job) const;  // of its pods, checkpoints and model

  // With the folders above it; only its owner may look inside.
  absl::Status Create() const { return Create(path_); }
  absl::Status CreateFolderOf(const kube::Json& job) const { return Create(FolderOf(job)); }

 private:
  static absl::Status Create(const std::string& path);

  std::string path_;
};

using EnvironmentReader = std::function<std::string(const char* name)>;

// `given` (--home), else $STARLING_HOME, else $XDG_STATE_HOME/starling, else
// ~/.local/state/starling; absolute. InvalidArgument if there is none of them.
absl::StatusOr<Home> FindHome(std::string_view given, const EnvironmentReader& environment);

}  // namespace starling::cli
