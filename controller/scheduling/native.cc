// SPDX-License-Identifier: Apache-2.0
// Kubernetes' own gang scheduling since 1.36: a PodGroup that stands alone, named by each pod's
// spec.schedulingGroup. The group's policy cannot be changed: after a change of minReplicas the
// gang keeps its size until the job is made anew.
#include "controller/scheduling/group.h"

namespace starling::scheduling {
namespace {

Json NativeGroup(const Gang& gang) {
  Json group = Group(gang, kube::kNativePodGroup);
  group["spec"]["schedulingPolicy"]["gang"]["minCount"] = gang.least;
  return group;
}

Json NativePatch(const Gang& gang) {
  Json patch = {{"spec", {{"schedulingGroup", {{"podGroupName", gang.job.name}}}}}};
  SetSchedulerName(patch, gang, "");
  return patch;
}

}  // namespace

GangDriver NativePodGroup() {
  return {.name = "native",
          .kind = kube::kNativePodGroup,
          .is_mutable = false,
          .has_queues = false,
          .has_timeout = false,
          .group = &NativeGroup,
          .pod_patch = &NativePatch};
}

}  // namespace starling::scheduling
