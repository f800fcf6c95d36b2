// SPDX-License-Identifier: Apache-2.0
// What pods ask of a node, counted as a scheduler counts it. Pure.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "controller/resources/resources.h"

namespace starling::resources {

// By resource: cpu in cores, memory in bytes, everything else as it is counted.
using Demand = std::map<std::string, double>;

void Add(const Demand& more, Demand& sum);
Demand Times(const Demand& each, std::int64_t times);

// The requests of a pod: those of its containers together, or of one init container that asks for
// more. A limit without a request is one; what is no quantity counts as nothing.
Demand DemandOf(const Json& pod);

// Of one pod of the role as it would be built for a cluster, whose requests are the same on one
// machine, though nobody holds processes to them there. InvalidArgument: as BuildPod.
absl::StatusOr<Demand> DemandOfRole(const v1alpha1::TrainingJobSpec& resolved, Role role);

// What a pod of the role asks for where its template says nothing of cores.
double DefaultCores(Role role);

// Cores that one pod of the role asks for by its template alone, null where it has none: cheap, for
// whoever looks at many jobs.
double CoresOf(Role role, const Json& pod_template);

}  // namespace starling::resources
