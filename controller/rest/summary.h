// SPDX-License-Identifier: Apache-2.0
// A job in a few words: what lists and their streams show, at most about a kilobyte.
#pragma once

#include "controller/kube/kube_client.h"

namespace starling::service {

// Pure. `job` is a TrainingJob in whatever state; what it lacks is left out.
kube::Json SummaryOf(const kube::Json& job);

// Succeeded or failed: nothing more will happen.
bool IsFinished(const kube::Json& job);

// What `progress` events tell: how far and how well. Null: nothing is known yet.
kube::Json ProgressOf(const kube::Json& job);

}  // namespace starling::service
