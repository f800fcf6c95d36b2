// SPDX-License-Identifier: Apache-2.0
// The controller's clients of a cluster's API server: limited, counted, two of them.
//
// Renewals of the lease have a client of their own: they must not wait behind a burst of pods, and
// a server that hangs must not hold them up until the lease is gone.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"
#include "controller/kube/http_kube_client.h"
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

// Of the REST service: a client of its own, and one for each caller.
struct ServiceConnection {
  std::unique_ptr<kube::KubeClient> client;
  // A client whose only credentials are this token: for nobody but whose token it is.
  std::function<absl::StatusOr<std::shared_ptr<kube::HttpKubeClient>>(const std::string& token)>
      open_as;
};

absl::StatusOr<ServiceConnection> ConnectAsService(const ClusterOptions& options,
                                                   metrics::Registry& registry);

}  // namespace starling::manager
