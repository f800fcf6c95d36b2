// SPDX-License-Identifier: Apache-2.0
// REST in a cluster, put together: a copy of all jobs, the door that the API server guards, the
// HTTPS server, telemetry.
//
// Any number of these run side by side and none leads: each has a copy of its own, and what they
// must share (a certificate, the key that signs places in lists) lies in one Secret. It serves
// nobody before its copy is in. Probes have a server and a thread of their own, so that no caller
// can have the pod killed.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "controller/manager/cluster_connection.h"
#include "controller/manager/serve_options.h"

namespace starling::manager {

// Confined to the main thread.
class ApiService {
 public:
  // Serves telemetry. What is referred to must outlive it.
  static absl::StatusOr<std::unique_ptr<ApiService>> Start(const ServeOptions& options,
                                                           ServiceConnection& connection,
                                                           metrics::Registry& registry,
                                                           const clock::Clock& clock);

  // Streams say goodbye, what is under way comes to its end, then everything ends.
  ~ApiService();

  // Goes on towards serving, if it is time: to be called every now and then. An API server that is
  // away is waited for; any other error is final.
  absl::Status Advance();

  int port() const;  // 0: not served yet
  int probe_port() const;

 private:
  struct Parts;
  explicit ApiService(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace starling::manager
