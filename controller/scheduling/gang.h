// SPDX-License-Identifier: Apache-2.0
// Gang scheduling: a job's pods start together, or none does.
//
// Whoever schedules gangs in this cluster is told by one object, the group, and by marks on the
// pods. Each kind of gang scheduler is one driver, a row of pure functions; which one is used
// follows from what the API server serves. Where none is, there is no group: our own coordinator
// starts training only with minReplicas members, so the job still starts whole, but its pods may
// hold resources while they wait.
//
// A gang of an elastic job is its coordinator and minReplicas workers: what it needs to train. The
// workers beyond that come and go one by one.
//
// To add a driver: a file with its two functions, a declaration below, a row in gang.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/kube/resource_kind.h"
#include "controller/resources/names.h"

namespace starling::scheduling {

using Json = nlohmann::json;

// What a gang scheduler is told.
struct Gang {
  resources::JobIdentity job;
  Json owner;                  // the reference to the TrainingJob that the group carries
  std::int64_t least = 1;      // pods without which none is started
  std::string queue;           // empty: the scheduler's own default
  std::string priority_class;  // empty: none
  std::string scheduler_name;  // empty: the driver's own
  std::optional<std::int64_t> timeout_seconds;  // how long the first may wait for the last
};

struct GangDriver {
  std::string_view name;    // as the controller's flag --gang-scheduler has it
  kube::ResourceKind kind;  // of the group; the driver is usable where it is served
  bool is_mutable;          // whether the group's spec may be changed
  bool has_queues;          // whether schedulingPolicy.queue means anything to it
  bool has_timeout;         // the same of scheduleTimeoutSeconds
  Json (*group)(const Gang&);
  Json (*pod_patch)(const Gang&);  // merged into each pod: metadata and spec
};

// coscheduling.cc: the scheduler plug-in of kubernetes-sigs/scheduler-plugins.
GangDriver Coscheduling();
// volcano.cc: Volcano's scheduler.
GangDriver Volcano();
// native.cc: kube-scheduler's own, PodGroup since Kubernetes 1.36.
GangDriver NativePodGroup();
// native_workload.cc: kube-scheduler's own in Kubernetes 1.35.
GangDriver NativeWorkload();

// All of them, in the order in which they are preferred where several are installed: who installs a
// gang scheduler beside Kubernetes' own wants it used.
std::vector<GangDriver> GangDrivers();

// Whether the API server has objects of a kind.
using Serves = std::function<absl::StatusOr<bool>(const kube::ResourceKind&)>;

// The driver to use. `wanted` is "auto" (the first that is served), "none", or a driver's name
// ("native" is whichever of the native ones is served). Nothing: no gang scheduler is used, the
// coordinator's own gate holds. FailedPrecondition: the one that is wanted is not served here;
// InvalidArgument: there is no such driver.
absl::StatusOr<std::optional<GangDriver>> SelectGangDriver(std::string_view wanted,
                                                           const Serves& serves);

// Whether `wanted` is one of the words above.
bool IsGangSchedulerName(std::string_view wanted);

// The kind of the group in Kubernetes 1.35; the others' are in controller/kube/resource_kind.h.
inline constexpr kube::ResourceKind kNativeWorkload{.group = "scheduling.k8s.io",
                                                    .version = "v1alpha1",
                                                    .kind = "Workload",
                                                    .plural = "workloads",
                                                    .optional = true};

}  // namespace starling::scheduling
