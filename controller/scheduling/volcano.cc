// SPDX-License-Identifier: Apache-2.0
// Volcano: a PodGroup, an annotation that puts a pod into it, and a scheduler of its own. It has
// queues and priorities, but no timeout.
#include "controller/scheduling/group.h"

namespace starling::scheduling {
namespace {

Json VolcanoGroup(const Gang& gang) {
  Json group = Group(gang, kube::kVolcanoPodGroup);
  group["spec"]["minMember"] = gang.least;
  if (!gang.queue.empty()) group["spec"]["queue"] = gang.queue;
  if (!gang.priority_class.empty()) group["spec"]["priorityClassName"] = gang.priority_class;
  return group;
}

Json VolcanoPatch(const Gang& gang) {
  Json patch = {{"metadata", {{"annotations", {{"scheduling.k8s.io/group-name", gang.job.name}}}}}};
  SetSchedulerName(patch, gang, "volcano");
  return patch;
}

}  // namespace

GangDriver Volcano() {
  return {.name = "volcano",
          .kind = kube::kVolcanoPodGroup,
          .is_mutable = true,
          .has_queues = true,
          .has_timeout = false,
          .group = &VolcanoGroup,
          .pod_patch = &VolcanoPatch};
}

}  // namespace starling::scheduling
