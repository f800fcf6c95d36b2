// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/telemetry.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "common/http/http_server.h"
#include "common/metrics/metrics_endpoint.h"
#include "common/status/macros.h"

namespace starling::manager {
namespace {

using Server = std::unique_ptr<http::HttpServer>;

absl::StatusOr<Server> Serve(const std::string& address, http::Handler handler) {
  if (address == "0" || address.empty()) return Server();
  const std::size_t colon = address.rfind(':');
  http::HttpServerOptions options;
  options.address = address.substr(0, colon);
  if (!options.address.empty() && options.address.front() == '[') {
    options.address = options.address.substr(1, options.address.size() - 2);
  }
  if (!absl::SimpleAtoi(address.substr(colon + 1), &options.port)) {
    return absl::InvalidArgumentError("\"" + address + "\": must be [HOST]:PORT");
  }
  options.body_limit = 1024;
  return http::HttpServer::Start(std::move(options), std::move(handler));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Telemetry>> Telemetry::Start(const TelemetryOptions& options,
                                                            const metrics::Registry& registry) {
  std::unique_ptr<Telemetry> telemetry(new Telemetry());
  ASSIGN_OR_RETURN(
      telemetry->metrics_, Serve(options.metrics_address, [&registry, refresh = options.refresh](
                                                              const http::Request& request) {
        if (request.Path() != "/metrics") {
          return http::Response{.status = 404, .body = "try /metrics\n", .headers = {}};
        }
        if (refresh) refresh();
        return metrics::Answer(request, registry, nullptr);
      }));
  ASSIGN_OR_RETURN(
      telemetry->probes_, Serve(options.probe_address, [&registry, not_ready = options.not_ready](
                                                           const http::Request& request) {
        if (request.Path() == "/metrics") {
          return http::Response{.status = 404, .body = "try /healthz or /readyz\n", .headers = {}};
        }
        return metrics::Answer(request, registry, not_ready);
      }));
  return telemetry;
}

Telemetry::~Telemetry() = default;

int Telemetry::metrics_port() const { return metrics_ == nullptr ? 0 : metrics_->port(); }
int Telemetry::probe_port() const { return probes_ == nullptr ? 0 : probes_->port(); }

}  // namespace starling::manager
