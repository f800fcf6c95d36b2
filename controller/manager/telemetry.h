// SPDX-License-Identifier: Apache-2.0
// What a controller in a cluster shows: /metrics at one address, /healthz and /readyz at another.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"

namespace starling::http {
class HttpServer;
}

namespace starling::manager {

struct TelemetryOptions {
  std::string metrics_address;  // "[HOST]:PORT"; "0": not served
  std::string probe_address;
  // Called before metrics are shown, on the server's thread.
  std::function<void()> refresh;
  // Why it is not ready; empty: it is.
  std::function<std::string()> not_ready;
};

// Thread-safe. Serves until it is destroyed.
class Telemetry {
 public:
  static absl::StatusOr<std::unique_ptr<Telemetry>> Start(const TelemetryOptions& options,
                                                          const metrics::Registry& registry);
  ~Telemetry();

  int metrics_port() const;  // 0: not served
  int probe_port() const;

 private:
  Telemetry() = default;

  std::unique_ptr<http::HttpServer> metrics_;
  std::unique_ptr<http::HttpServer> probes_;
};

}  // namespace starling::manager
