// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics_endpoint.h"

#include <utility>

namespace starling::metrics {

http::Response Answer(const http::Request& request, const Registry& registry,
                      const Readiness& not_ready) {
  if (request.method != "GET" && request.method != "HEAD") {
    return {
        .status = 405, .body = "only GET is served here\n", .headers = {{"Allow", "GET, HEAD"}}};
  }
  if (request.Path() == "/metrics") {
    return {.body = registry.Serialize(),
            .content_type = "text/plain; version=0.0.4; charset=utf-8",
            .headers = {}};
  }
  if (request.Path() == "/healthz") return {.body = "ok\n", .headers = {}};
  if (request.Path() == "/readyz") {
    const std::string why = not_ready ? not_ready() : "";
    if (why.empty()) return {.body = "ok\n", .headers = {}};
    return {.status = 503, .body = why + "\n", .headers = {}};
  }
  return {.status = 404, .body = "try /metrics, /healthz or /readyz\n", .headers = {}};
}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    std::string_view address, int port, const Registry& registry, Readiness not_ready,
    std::function<void()> refresh) {
  http::HttpServerOptions options;
  options.address = std::string(address);
  options.port = port;
  options.body_limit = 1024;
  auto server = http::HttpServer::Start(
      std::move(options), [&registry, not_ready = std::move(not_ready),
                           refresh = std::move(refresh)](const http::Request& request) {
        if (refresh && request.Path() == "/metrics") refresh();
        return Answer(request, registry, not_ready);
      });
  if (!server.ok()) return server.status();
  return std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(*std::move(server)));
}

}  // namespace starling::metrics
