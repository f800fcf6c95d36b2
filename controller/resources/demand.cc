// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/demand.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/spec/quantity.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/resources/container_pod.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

double AmountOf(const Json& quantity) {
  const std::string text =
      quantity.is_string() ? quantity.get<std::string>() : json::Dump(quantity);
  return spec::ParseQuantity(text).value_or(0);
}

Demand DemandOfContainer(const Json& container) {
  Demand demand;
  for (const char* kind : {"/resources/limits", "/resources/requests"}) {
    const Json& amounts = kube::At(container, kind);
    if (!amounts.is_object()) continue;
    for (const auto& [resource, amount] : amounts.items()) demand[resource] = AmountOf(amount);
  }
  return demand;
}

// Init containers run one after the other, before the others; those that go on beside them
// (restartPolicy Always) count with them.
void AddInit(const Json& container, Demand& beside, Demand& most) {
  Demand own = DemandOfContainer(container);
  if (kube::StringAt(container, "/restartPolicy") == "Always") {
    Add(own, beside);
    return;
  }
  Add(beside, own);
  for (const auto& [resource, amount] : own) most[resource] = std::max(most[resource], amount);
}

}  // namespace

void Add(const Demand& more, Demand& sum) {
  for (const auto& [resource, amount] : more) sum[resource] += amount;
}

Demand Times(const Demand& each, std::int64_t times) {
  Demand all;
  for (const auto& [resource, amount] : each) all[resource] = amount * static_cast<double>(times);
  return all;
}

Demand DemandOf(const Json& pod) {
  Demand running, most;
  const Json& inits = kube::At(pod, "/spec/initContainers");
  for (std::size_t i = 0; inits.is_array() && i < inits.size(); ++i) {
    AddInit(inits[i], running, most);
  }
  const Json& containers = kube::At(pod, "/spec/containers");
  for (std::size_t i = 0; containers.is_array() && i < containers.size(); ++i) {
    Add(DemandOfContainer(containers[i]), running);
  }
  for (const auto& [resource, amount] : most) {
    running[resource] = std::max(running[resource], amount);
  }
  const Json& overhead = kube::At(pod, "/spec/overhead");
  if (!overhead.is_object()) return running;
  for (const auto& [resource, amount] : overhead.items()) running[resource] += AmountOf(amount);
  return running;
}

absl::StatusOr<Demand> DemandOfRole(const v1alpha1::TrainingJobSpec& resolved, Role role) {
  const JobIdentity job{.ns = "default", .name = "job", .uid = "0"};
  const Platform platform{.jobs_folder = "", .image = "starling"};
  const PodRequest request{.role = role};
  if (resolved.workload().has_container()) {
    ASSIGN_OR_RETURN(const Json pod,
                     BuildContainerPod(job, resolved, request, {.members = {0}}, platform));
    return DemandOf(pod);
  }
  ASSIGN_OR_RETURN(const Json pod, BuildPod(job, resolved, request, platform));
  return DemandOf(pod);
}

double CoresOf(Role role, const Json& pod_template) {
  double cores = 0;
  bool trainer = false;
  const Json& containers = kube::At(pod_template, "/spec/containers");
  for (std::size_t i = 0; containers.is_array() && i < containers.size(); ++i) {
    const Demand own = DemandOfContainer(containers[i]);
    const auto cpu = own.find("cpu");
    const bool ours = kube::StringAt(containers[i], "/name") == kContainer;
    trainer = trainer || ours;
    if (cpu != own.end()) {
      cores += cpu->second;
    } else if (ours) {
      cores += DefaultCores(role);
    }
  }
  return trainer ? cores : cores + DefaultCores(role);
}

}  // namespace starling::resources
