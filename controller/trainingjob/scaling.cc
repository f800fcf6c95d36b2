// SPDX-License-Identifier: Apache-2.0
// How many workers there should be, which one goes, which index the next one gets.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

constexpr std::int64_t kMostWorkers = 1024;
constexpr std::int64_t kReproducibleGroups = 16;

// Lowest first. A pod keeps its index until it is gone; one that has ended and is deleted in this
// pass is.
class FreeIndexes {
 public:
  FreeIndexes(const Pass& pass, Role role) {
    for (const ObservedPod& pod : pass.observed.pods) {
      const bool gone = pod.Terminated() && pass.deleted.contains(pod.uid);
      if (pod.role == role && !gone) taken_.insert(pod.index);
    }
  }
  std::int64_t Take() {
    while (taken_.contains(next_)) ++next_;
    return next_++;
  }

 private:
  std::set<std::int64_t> taken_;
  std::int64_t next_ = 0;
};

void Create(Pass& pass, Role role, std::int64_t index) {
  if (!pass.status.has_start_time()) {
    SetTime(pass.status.mutable_start_time(), pass.now);
  }
  pass.decision.actions.push_back(CreatePod{role, index, ConfigGeneration(pass)});
}

// New pods wait while replacements fail; returns whether they do.
bool IsDelayed(Pass& pass) {
  const absl::Duration delay = RestartDelay(pass);
  if (delay <= absl::ZeroDuration()) return false;
  pass.RequeueAfter(delay);
  return true;
}

bool IsDrained(const Pass& pass, const ObservedPod& pod) {
  if (pod.phase == PodPhase::kPending) return true;
  if (pod.surplus_since.has_value() &&
      pass.now - *pod.surplus_since >= pass.options.drain_timeout) {
    return true;
  }
  if (pass.report == nullptr) return false;
  for (const v1alpha1::MemberStatus& member : pass.report->members()) {
    if (member.id().pod_uid() == pod.uid && member.drained()) return true;
  }
  return false;
}

void Drain(Pass& pass, const ObservedPod& pod) {
  pass.decision.surplus.push_back(pod.uid);
  if (IsDrained(pass, pod)) {
    pass.Reason(absl::StrCat(pod.name, " is drained"));
    pass.Delete(pod, std::nullopt);
  } else {
    pass.RequeueAt(pod.surplus_since.value_or(pass.now) + pass.options.drain_timeout);
  }
}

}  // namespace

Wanted WantedWorkers(const v1alpha1::TrainingJobSpec& spec) {
  const v1alpha1::WorkerSpec& worker = spec.replica_specs().worker();
  Wanted wanted{.workers = std::clamp<std::int64_t>(worker.replicas(), 0, kMostWorkers),
                .limit = ""};
  const auto at_least = [&](std::int64_t bound, const char* limit) {
    if (wanted.workers < bound) wanted = {bound, limit};
  };
  const auto at_most = [&](std::int64_t bound, const char* limit) {
    if (wanted.workers > bound) wanted = {bound, limit};
  };
  at_least(std::clamp<std::int64_t>(worker.min_replicas(), 1, kMostWorkers), "minReplicas");
  if (worker.has_max_replicas()) {
    at_most(std::max<std::int64_t>(worker.max_replicas(), 1), "maxReplicas");
  }
  if (spec.reproducible()) {
    const std::int64_t batch = std::max<std::int64_t>(spec.dataset().global_batch_size(), 1);
    at_most(std::min(batch, kReproducibleGroups), "reproducible: true (min(globalBatchSize, 16))");
  }
  if (spec.exchange().has_none()) at_most(1, "exchange: none");
  return wanted;
}

void EnsureCoordinator(Pass& pass) {
  if (pass.leader != nullptr || !pass.UsablePods(Role::kCoordinator).empty()) return;
  if (IsDelayed(pass)) return;
  Create(pass, Role::kCoordinator, FreeIndexes(pass, Role::kCoordinator).Take());
}

void ScaleWorkers(Pass& pass) {
  const Wanted wanted = WantedWorkers(pass.observed.spec);
  const std::int64_t asked = pass.observed.spec.replica_specs().worker().replicas();
  if (!wanted.limit.empty() && pass.status.replicas() != wanted.workers) {
    pass.Event(true, "ReplicasBounded", "Scale",
               absl::StrCat(asked, " workers are asked for; ", wanted.limit, " makes that ",
                            wanted.workers));
  }
  pass.status.set_replicas(wanted.workers);
  const std::vector<const ObservedPod*> workers = pass.UsablePods(Role::kWorker);
  const auto count = static_cast<std::int64_t>(workers.size());
  for (std::int64_t i = wanted.workers; i < count; ++i) {
    Drain(pass, *workers[static_cast<std::size_t>(i)]);
  }
  if (count >= wanted.workers || IsDelayed(pass)) return;
  FreeIndexes indexes(pass, Role::kWorker);
  for (std::int64_t i = count; i < wanted.workers; ++i) {
    Create(pass, Role::kWorker, indexes.Take());
  }
}

}  // namespace starling::trainingjob
