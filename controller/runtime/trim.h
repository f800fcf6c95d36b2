// SPDX-License-Identifier: Apache-2.0
// What an informer's copy of a message keeps, and what of a pod's changes is news.
//
// Thousands of jobs are held in memory, each with several pods. A message has only the fields that
// somebody reads (api/proto/kubernetes/objects.proto); of its labels and annotations the copy keeps
// ours, for others' may be of any size.
#pragma once

#include <string>

#include "controller/kube/kube_client.h"

namespace starling::kubernetes {
class Pod;
}

namespace starling::runtime {

// Without the labels and annotations that are not ours (starling.dev/...).
kube::MessagePtr KeepOurs(kube::MessagePtr object);

// What of a pod a decision may depend on (InformerOptionsOf::news): that it runs, ends, is being
// deleted, cannot start or has no place; not where it was placed nor how far its start is.
std::string NewsOfPod(const kube::Message& pod);

}  // namespace starling::runtime
