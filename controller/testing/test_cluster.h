// SPDX-License-Identifier: Apache-2.0
// Jobs on two nodes of a cluster, for tests of what Decide() makes of nodes and places.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "controller/testing/test_scene.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {

inline constexpr std::int64_t kMi = 1024 * 1024;

// Trains on the nodes "a" (with the coordinator) and "b", each worker on one of them in turn.
inline Scene& InCluster(Scene& s, std::int64_t workers = 2) {
  s.options = ClusterOptions();
  s.options.budgets = false;
  s.Training(workers);
  for (ObservedPod& pod : s.seen.pods) {
    pod.node = pod.role == Role::kWorker && pod.index % 2 == 1 ? "b" : "a";
    pod.memory = 64 * kMi;
    pod.started = s.now;
  }
  s.seen.nodes["a"] = s.seen.nodes["b"] = {};
  return s.Settle();
}

inline ObservedPod& Pending(Scene& s, std::int64_t index, std::string_view reason) {
  ObservedPod& pod = s.Add(Role::kWorker, index, PodPhase::kPending);
  pod.problem = PodProblem{reason, "as the kubelet says it", s.now - absl::Seconds(3)};
  return pod;
}

inline const CreatePod* Creation(const Decision& d, Role role, std::int64_t index) {
  for (const Action& action : d.actions) {
    const auto* create = std::get_if<CreatePod>(&action);
    if (create != nullptr && create->role == role && create->index == index) return create;
  }
  return nullptr;
}

inline std::string MessageOf(const Decision& d, std::string_view type) {
  const v1alpha1::Condition* condition = FindCondition(d.status, type);
  return condition == nullptr ? "" : condition->message();
}

}  // namespace starling::trainingjob
