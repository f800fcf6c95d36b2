// SPDX-License-Identifier: Apache-2.0
// What every process shows of itself: /metrics, /healthz and /readyz.
//
// /healthz answers 200 while the process lives; /readyz answers 200 or 503 by the reason that
// `not_ready` gives ("" is ready). Anything else is 404.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/http/http_server.h"
#include "common/metrics/metrics.h"

namespace starling::metrics {

// Called on the server's thread; returns "" when ready, else why not.
using Readiness = std::function<std::string()>;

// Thread-safe. `registry` must outlive it.
class MetricsEndpoint {
 public:
  // Port 0 takes any free one. `refresh`, if given, is called on the server's thread before metrics
  // are shown.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      std::string_view address, int port, const Registry& registry, Readiness not_ready = nullptr,
      std::function<void()> refresh = nullptr);

  int port() const { return server_->port(); }

 private:
  explicit MetricsEndpoint(std::unique_ptr<http::HttpServer> server) : server_(std::move(server)) {}
  std::unique_ptr<http::HttpServer> server_;
};

// The answer to one request, for servers that have more to show than this.
http::Response Answer(const http::Request& request, const Registry& registry,
                      const Readiness& not_ready);

}  // namespace starling::metrics
