// SPDX-License-Identifier: Apache-2.0
// The controller's clients of a cluster's API server: limited, counted, two of them.
//
// Renewals of the lease have a client of their own: they must not wait behind a burst of pods, and
// a server that hangs must not hold them up until the lease is gone.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"
#include "controller/kube/kube_client.h"
#include "controller/manager/options.h"

namespace starling::manager {

struct ClusterConnection {
  std::unique_ptr<kube::KubeClient> client;
  std::unique_ptr<kube::KubeClient> lease_client;
};

// Talks to nobody yet. NotFound, InvalidArgument: the configuration is wrong. `registry` counts
// requests and must outlive the clients.
absl::StatusOr<ClusterConnection> ConnectToCluster(const ClusterOptions& options,
                                                   metrics::Registry& registry);

}  // namespace starling::manager
