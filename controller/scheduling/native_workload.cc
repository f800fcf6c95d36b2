// SPDX-License-Identifier: Apache-2.0
// Kubernetes' own gang scheduling as 1.35 has it: a Workload with one group of pods, named by each
// pod's spec.workloadRef. It is immutable.
#include "controller/scheduling/group.h"

namespace starling::scheduling {
namespace {

constexpr char kGroupName[] = "members";

Json Workload(const Gang& gang) {
  Json workload = Group(gang, kNativeWorkload);
  workload["spec"] = {
      {"controllerRef",
       {{"apiGroup", "starling.dev"}, {"kind", "TrainingJob"}, {"name", gang.job.name}}},
      {"podGroups",
       Json::array({{{"name", kGroupName}, {"policy", {{"gang", {{"minCount", gang.least}}}}}}})}};
  return workload;
}

Json WorkloadPatch(const Gang& gang) {
  Json patch = {{"spec", {{"workloadRef", {{"name", gang.job.name}, {"podGroup", kGroupName}}}}}};
  SetSchedulerName(patch, gang, "");
  return patch;
}

}  // namespace

GangDriver NativeWorkload() {
  return {.name = "native",
          .kind = kNativeWorkload,
          .is_mutable = false,
          .has_queues = false,
          .has_timeout = false,
          .group = &Workload,
          .pod_patch = &WorkloadPatch};
}

}  // namespace starling::scheduling
