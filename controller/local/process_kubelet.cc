// SPDX-License-Identifier: Apache-2.0
#include "controller/local/process_kubelet.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/local/node.h"

namespace starling::local {
namespace {

constexpr const char* kInherited[] = {
    "HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "STARLING_LOG_LEVEL",
    // What object stores and web servers are reached by (common/storage/s3_settings.h).
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME", "AWS_CA_BUNDLE", "SSL_CERT_FILE", "http_proxy", "https_proxy",
    "HTTPS_PROXY", "no_proxy", "NO_PROXY"};

}  // namespace

std::vector<std::string> PodEnvironment(const KubeletOptions& options) {
  const char* path = std::getenv("PATH");
  std::vector<std::string> environment = {
      absl::StrCat("PATH=", options.program_folder, ":",
                   path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path),
      absl::StrCat("STARLING_HOME=", options.home)};
  for (const char* name : kInherited) {
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

ProcessKubelet::~ProcessKubelet() = default;

absl::Status ProcessKubelet::Start() { return node_->Start(); }

void ProcessKubelet::Stop(StopMode mode) { node_->Stop(mode); }

}  // namespace starling::local
