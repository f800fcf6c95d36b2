// SPDX-License-Identifier: Apache-2.0
// The controller of a cluster, put together: copies of what the API server has, leader election,
// reconciler, telemetry.
//
// Several run, one leads. All keep their copies current, so that whoever takes over begins
// immediately. The leader's writes pass a fence that closes with its lease; when the lease is lost
// the process is to end, and comes back as a standby. To add a controller, add its queue, its
// reconciler and its informers' handlers here.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "controller/kube/kube_client.h"
#include "controller/manager/options.h"

namespace starling::manager {

enum class ClusterState { kSyncing, kStandby, kLeading, kLost };

// Confined to the main thread.
class ClusterController {
 public:
  // Serves telemetry and begins to copy. `client`, `lease_client`, `registry` and `clock` must
  // outlive it.
  static absl::StatusOr<std::unique_ptr<ClusterController>> Start(const Options& options,
                                                                  kube::KubeClient& client,
                                                                  kube::KubeClient& lease_client,
                                                                  metrics::Registry& registry,
                                                                  const clock::Clock& clock);

  // Ends what runs, a reconcile that is under way last, and gives the lease back. Pods go on.
  ~ClusterController();

  // Goes from one state to the next if it is time: to be called every now and then. After kLost
  // nothing is left to do but to end the process.
  absl::StatusOr<ClusterState> Advance();

  int metrics_port() const;
  int probe_port() const;

 private:
  struct Parts;
  explicit ClusterController(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace starling::manager
