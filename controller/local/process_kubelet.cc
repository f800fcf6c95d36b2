// SPDX-License-Identifier: Apache-2.0
#include "controller/local/process_kubelet.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/local/node.h"

namespace starling::local {

std::vector<std::string> PodEnvironment(const KubeletOptions& options) {
  const char* path = std::getenv("PATH");
  std::vector<std::string> environment = {
      absl::StrCat("PATH=", options.program_folder, ":",
                   path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path),
      absl::StrCat("STARLING_HOME=", options.home)};
  for (const char* name :
       {"HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "LD_PRELOAD",
        "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "STARLING_LOG_LEVEL"}) {
    if (const char* value = std::getenv(name); value != nullptr) {
      environment.push_back(absl::StrCat(name, "=", value));
    }
  }
  return environment;
}

ProcessKubelet::ProcessKubelet(kube::KubeClient& client, runtime::Informer& pods,
                               runtime::Informer& jobs, const clock::Clock& clock,
                               KubeletOptions options)
    : node_(std::make_unique<Node>(client, pods, jobs, clock, std::move(options))) {}

ProcessKubelet::~ProcessKubelet() { node_->Stop(StopMode::kLeavePods); }

absl::Status ProcessKubelet::Start() { return node_->Start(); }

void ProcessKubelet::Stop(StopMode mode) { node_->Stop(mode); }

}  // namespace starling::local
