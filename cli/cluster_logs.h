// SPDX-License-Identifier: Apache-2.0
// logs in a cluster: what the API server hands out of a pod, or of all pods of a job.
#pragma once

#include "absl/status/status.h"
#include "cli/arguments.h"
#include "cli/interrupts.h"
#include "cli/terminal.h"
#include "common/clock/clock.h"
#include "controller/kube/kube_client.h"
#include "controller/kube/pod_logs.h"

namespace starling::cli {

struct ClusterLogsParts {
  Terminal& terminal;
  const clock::Clock& clock;
  const Interrupts& interrupts;
  kube::KubeClient& store;
  kube::PodLogs& logs;
};

// NotFound where there is neither a job nor a pod of that name. One that is followed and goes away
// has only come to its end.
absl::Status ClusterLogs(const ClusterLogsParts& parts, const Arguments& arguments);

}  // namespace starling::cli
