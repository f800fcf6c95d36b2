// SPDX-License-Identifier: Apache-2.0
// logs in a cluster: what the API server hands out of a pod, or of all pods of a job.
#pragma once

#include "absl/status/status.h"
#include "cli/arguments.h"
#include "cli/session.h"

namespace starling::cli {

absl::Status ClusterLogs(Session& session, const Arguments& arguments);

}  // namespace starling::cli
