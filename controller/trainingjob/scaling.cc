// SPDX-License-Identifier: Apache-2.0
// How many pods of a role there should be, which one goes, which index the next one gets.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

constexpr std::int64_t kMostReplicas = 1024;
constexpr std::int64_t kReproducibleGroups = 16;

// A worker that is not drained in time is deleted all the same: it has nothing that others lack.
// What a parameter server holds may be nowhere else, so it is waited for without end.
bool MustBeDrained(Role role) { return role == Role::kParameterServer; }

bool IsDrained(const Pass& pass, const ObservedPod& pod) {
  if (pod.phase == PodPhase::kPending) return true;
  if (!MustBeDrained(pod.role) && pod.surplus_since.has_value() &&
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
  } else if (!MustBeDrained(pod.role)) {
    pass.RequeueAt(pod.surplus_since.value_or(pass.now) + pass.options.drain_timeout);
  }
}

void AtLeast(Wanted& wanted, std::int64_t bound, const char* limit) {
  if (wanted.replicas < bound) wanted = {bound, limit};
}

void AtMost(Wanted& wanted, std::int64_t bound, const char* limit) {
  if (wanted.replicas > bound) wanted = {bound, limit};
}

// What a role's part of the spec says itself.
template <typename RoleSpec>
Wanted WithinOwnBounds(const RoleSpec& role) {
  Wanted wanted{.replicas = std::clamp<std::int64_t>(role.replicas(), 0, kMostReplicas),
                .limit = ""};
  AtLeast(wanted, std::clamp<std::int64_t>(role.min_replicas(), 1, kMostReplicas), "minReplicas");
  if (role.has_max_replicas()) {
    AtMost(wanted, std::max<std::int64_t>(role.max_replicas(), 1), "maxReplicas");
  }
  return wanted;
}

// At least one, whatever a queue says: what was admitted at all runs.
Wanted WithinQuota(Wanted wanted, const std::optional<std::int64_t>& limit,
                   const std::string& message) {
  if (limit.has_value() && wanted.replicas > *limit) {
    wanted.replicas = std::max<std::int64_t>(*limit, 1);
    wanted.limit = message.empty() ? "the queue" : message;
  }
  return wanted;
}

// Lets go of who must leave and of who is more than wanted, the highest index first, and makes who
// is missing.
void ScaleRole(Pass& pass, Role role, std::int64_t wanted) {
  for (const ObservedPod* pod : pass.UsablePods(role)) {
    if (pass.leaving.contains(pod->uid)) Drain(pass, *pod);
  }
  const std::vector<const ObservedPod*> staying = pass.StayingPods(role);
  const auto count = static_cast<std::int64_t>(staying.size());
  for (std::int64_t i = wanted; i < count; ++i) {
    Drain(pass, *staying[static_cast<std::size_t>(i)]);
  }
  if (count >= wanted || IsDelayed(pass)) return;
  for (const std::int64_t index : FreeIndexes(pass, role, wanted - count)) {
    MakePod(pass, role, index, {});
  }
}

}  // namespace

std::vector<std::int64_t> FreeIndexes(const Pass& pass, Role role, std::int64_t n) {
  std::set<std::int64_t> taken;
  for (const ObservedPod& pod : pass.observed.pods) {
    const bool gone = pod.Terminated() && pass.deleted.contains(pod.uid);
    if (pod.role == role && !gone) taken.insert(pod.index);
  }
  std::vector<std::int64_t> free;
  for (std::int64_t index = 0; static_cast<std::int64_t>(free.size()) < n; ++index) {
    if (!taken.contains(index)) free.push_back(index);
  }
  return free;
}

void MakePod(Pass& pass, Role role, std::int64_t index, const World& world) {
  if (!pass.status.has_start_time()) {
    SetTime(pass.status.mutable_start_time(), pass.now);
  }
  CreatePod create{.role = role,
                   .index = index,
                   .config_generation = ConfigGeneration(pass),
                   .memory = RaisedMemory(pass, role),
                   .avoid = NodesToAvoid(pass),
                   .world = world};
  pass.decision.actions.push_back(std::move(create));
}

bool IsDelayed(Pass& pass) { return pass.PutOff(std::max(RestartDelay(pass), RefusalDelay(pass))); }

Wanted WantedWorkers(const Pass& pass) {
  const Queueing& queueing = pass.observed.queueing;
  return WithinQuota(WantedWorkers(pass.observed.spec), queueing.worker_limit,
                     queueing.limit_message);
}

Wanted WantedServers(const Pass& pass) {
  const Queueing& queueing = pass.observed.queueing;
  return WithinQuota(WantedServers(pass.observed.spec), queueing.server_limit,
                     queueing.server_limit_message);
}

Wanted WantedWorkers(const v1alpha1::TrainingJobSpec& spec) {
  Wanted wanted = WithinOwnBounds(spec.replica_specs().worker());
  if (spec.reproducible()) {
    // The program of workload.pytorch may be the one that says it.
    const auto& dataset = spec.dataset();
    const std::int64_t batch =
        dataset.has_global_batch_size() ? dataset.global_batch_size() : kReproducibleGroups;
    AtMost(wanted, std::clamp<std::int64_t>(batch, 1, kReproducibleGroups),
           "reproducible: true (min(globalBatchSize, 16))");
  }
  const bool own_container = spec.workload().has_container();
  if (spec.exchange().has_none() && !own_container) AtMost(wanted, 1, "exchange: none");
  return wanted;
}

Wanted WantedServers(const v1alpha1::TrainingJobSpec& spec) {
  return resources::HasServers(spec) ? WithinOwnBounds(spec.replica_specs().parameter_server())
                                     : Wanted{};
}

void EnsureCoordinator(Pass& pass) {
  if (pass.leader != nullptr || !pass.UsablePods(Role::kCoordinator).empty()) return;
  if (IsDelayed(pass)) return;
  MakePod(pass, Role::kCoordinator, FreeIndexes(pass, Role::kCoordinator, 1).front(), {});
}

void NoteWanted(Pass& pass, const Wanted& wanted) {
  const std::int64_t asked = pass.observed.spec.replica_specs().worker().replicas();
  if (!wanted.limit.empty() && pass.status.replicas() != wanted.replicas) {
    pass.Event(true, "ReplicasBounded", "Scale",
               absl::StrCat(asked, " workers are asked for; ", wanted.limit, " makes that ",
                            wanted.replicas));
  }
  pass.status.set_replicas(wanted.replicas);
}

void ScaleWorkers(Pass& pass) {
  const Wanted wanted = WantedWorkers(pass);
  NoteWanted(pass, wanted);
  ScaleRole(pass, Role::kWorker, wanted.replicas);
}

void ScaleServers(Pass& pass) {
  const Wanted wanted = WantedServers(pass);
  // Once for what the user has written.
  if (!wanted.limit.empty() && pass.status.observed_generation() != pass.observed.generation) {
    const std::int64_t asked = pass.observed.spec.replica_specs().parameter_server().replicas();
    pass.Event(true, "ReplicasBounded", "Scale",
               absl::StrCat(asked, " parameter servers are asked for; ", wanted.limit,
                            " makes that ", wanted.replicas));
  }
  ScaleRole(pass, Role::kParameterServer, wanted.replicas);
}

}  // namespace starling::trainingjob
