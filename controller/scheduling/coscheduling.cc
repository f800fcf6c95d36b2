// SPDX-License-Identifier: Apache-2.0
// The coscheduling plug-in of kubernetes-sigs/scheduler-plugins: a PodGroup, and a label that puts
// a pod into it. The plug-in may run in the default scheduler or in one with a name of its own,
// which only the administrator knows.
#include "controller/scheduling/group.h"

namespace starling::scheduling {
namespace {

Json PodGroup(const Gang& gang) {
  Json group = Group(gang, kube::kCoschedulingPodGroup);
  group["spec"]["minMember"] = gang.least;
  if (gang.timeout_seconds.has_value()) {
    group["spec"]["scheduleTimeoutSeconds"] = *gang.timeout_seconds;
  }
  return group;
}

Json PodPatch(const Gang& gang) {
  Json patch = {{"metadata", {{"labels", {{"scheduling.x-k8s.io/pod-group", gang.job.name}}}}}};
  SetSchedulerName(patch, gang, "");
  return patch;
}

}  // namespace

GangDriver Coscheduling() {
  return {.name = "coscheduling",
          .kind = kube::kCoschedulingPodGroup,
          .is_mutable = true,
          .has_queues = false,
          .has_timeout = true,
          .group = &PodGroup,
          .pod_patch = &PodPatch};
}

}  // namespace starling::scheduling
