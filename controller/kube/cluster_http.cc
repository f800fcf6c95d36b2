// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/cluster_http.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/macros.h"
#include "common/sync/mutex.h"
#include "controller/kube/http_status.h"

namespace starling::kube {
namespace {

constexpr absl::Duration kTokenLifetime = absl::Seconds(30);  // then its file is read again

absl::Status Annotate(const ClusterConfig& config, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(config.origin, ": ", status.message()));
}

// A token and when it was read. Thread-safe.
class Token {
 public:
  explicit Token(ClusterConfig config) : config_(std::move(config)) {}

  absl::Status Show(http::Request& request, bool reread) {
    const sync::MutexLock lock(mutex_);
    const bool fresh = config_.token.file.empty() || absl::Now() - read_ < kTokenLifetime;
    if (reread || token_.empty() || !fresh) {
      ASSIGN_OR_RETURN(const std::string text, config_.token.Read());
      token_ = std::string(absl::StripAsciiWhitespace(text));
      read_ = absl::Now();
    }
    if (token_.empty() || !http::IsHeaderText(token_) ||
        token_.find_first_of(" \t") != std::string::npos) {
      return Annotate(config_,
                      absl::InvalidArgumentError("the token is empty or has spaces in it"));
    }
    request.headers.emplace_back("Authorization", "Bearer " + token_);
    return absl::OkStatus();
  }

 private:
  const ClusterConfig config_;
  sync::Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
  absl::Time read_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

absl::StatusOr<http::ClientTls> ReadTls(const ClusterConfig& config) {
  http::ClientTls tls{.authority = "",
                      .insecure = config.insecure,
                      .server_name = config.tls_server_name,
                      .certificate = "",
                      .key = ""};
  const std::pair<const FileOrText*, std::string*> texts[] = {
      {&config.authority, &tls.authority},
      {&config.certificate, &tls.certificate},
      {&config.key, &tls.key}};
  for (const auto& [source, text] : texts) {
    auto read = source->Read();
    if (!read.ok()) return Annotate(config, read.status());
    *text = *std::move(read);
  }
  if (!config.authority.empty() && tls.authority.empty()) {
    // An empty file must not mean that the system's authorities are believed.
    return Annotate(config, absl::InvalidArgumentError("the certificate authority is empty"));
  }
  return tls;
}

}  // namespace

absl::StatusOr<std::unique_ptr<http::HttpClient>> OpenClusterHttp(const ClusterConfig& config,
                                                                  http::ClientOptions options) {
  ASSIGN_OR_RETURN(const http::Endpoint endpoint, http::Endpoint::Parse(config.server));
  if (!endpoint.tls && !(config.token.empty() && config.certificate.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.origin, ": credentials are not sent over http://; use https://"));
  }
  options.peer = "API server";
  if (endpoint.tls) options.tls = [config] { return ReadTls(config); };
  if (!config.token.empty()) {
    options.authorize = [token = std::make_shared<Token>(config)](http::Request& request,
                                                                  bool again) {
      return token->Show(request, again);
    };
  }
  options.status_of = [](const http::Response& answer) { return StatusOfAnswer(answer); };
  return http::HttpClient::Open(config.server, std::move(options));
}

}  // namespace starling::kube
