// SPDX-License-Identifier: Apache-2.0
// For tests: a job in the midst of its life, to be changed in one respect, and questions about what
// is decided.
#pragma once

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "controller/trainingjob/decide.h"
#include "controller/trainingjob/pass.h"

namespace starling::trainingjob {

// Starts as a job of two workers that nobody has looked at yet.
class Scene {
 public:
  Scene() {
    seen.job = {"default", "digits", "0123456789abcdef"};
    seen.created = now;
    auto& worker = *seen.spec.mutable_replica_specs()->mutable_worker();
    worker.set_replicas(2);
    worker.set_min_replicas(1);
    worker.set_restart_policy(v1alpha1::RESTART_POLICY_ON_FAILURE);
    seen.spec.mutable_replica_specs()->mutable_coordinator();
    seen.spec.mutable_dataset()->set_global_batch_size(64);
    seen.spec.mutable_exchange()->mutable_all_reduce();
    auto& policy = *seen.spec.mutable_run_policy();
    policy.set_suspend(false);
    policy.set_backoff_limit(2);
    policy.set_clean_pod_policy(v1alpha1::CLEAN_POD_POLICY_RUNNING);
  }

  v1alpha1::WorkerSpec& worker() { return *seen.spec.mutable_replica_specs()->mutable_worker(); }
  // The job has parameter servers from now on.
  v1alpha1::ParameterServerSpec& servers(std::int64_t replicas) {
    if (!seen.spec.exchange().has_parameter_server()) {
      seen.spec.mutable_exchange()->mutable_parameter_server()->set_replication(1);
    }
    auto& servers = *seen.spec.mutable_replica_specs()->mutable_parameter_server();
    servers.set_replicas(replicas);
    servers.set_min_replicas(1);
    servers.set_restart_policy(v1alpha1::RESTART_POLICY_ON_FAILURE);
    return servers;
  }
  v1alpha1::RunPolicy& policy() { return *seen.spec.mutable_run_policy(); }
  v1alpha1::CoordinatorReport& report() { return seen.link->report; }

  // Secret, service and frozen spec are there.
  Scene& Prepared() {
    seen.has_secret = seen.has_service = true;
    seen.configs = {{1, true}};
    return *this;
  }

  ObservedPod& Add(Role role, std::int64_t index, PodPhase phase = PodPhase::kRunning) {
    ObservedPod pod;
    pod.role = role;
    pod.index = index;
    pod.name = resources::PodName(seen.job.name, role, index);
    pod.uid = pod.name + "-uid" + std::to_string(++uids_);
    pod.phase = phase;
    pod.ready = phase == PodPhase::kRunning;
    pod.created = now;
    if (phase != PodPhase::kPending) pod.ip = "127.1.0." + std::to_string(uids_);
    if (!pod.ip.empty()) pod.ips = {pod.ip};
    pod.host = pod.name;
    seen.pods.push_back(pod);
    return seen.pods.back();
  }

  ObservedPod& Pod(std::string_view name) {
    return *std::find_if(seen.pods.begin(), seen.pods.end(),
                         [&](const ObservedPod& pod) { return pod.name == name; });
  }

  // The pod's container has ended.
  ObservedPod& End(std::string_view name, std::int64_t code, std::int64_t signal = 0) {
    ObservedPod& pod = Pod(name);
    pod.phase = code == 0 ? PodPhase::kSucceeded : PodPhase::kFailed;
    pod.ready = false;
    pod.exit = PodExit{code, signal, "", "", now};
    return pod;
  }

  // A coordinator that speaks, without or with an incarnation.
  Scene& Booted(std::string boot_id = "boot-a") {
    seen.link.emplace();
    seen.link->pod_uid = Pod("digits-coordinator-0").uid;
    seen.link->heard = true;
    seen.link->silent = absl::Milliseconds(10);
    seen.link->report.set_boot_id(std::move(boot_id));
    return *this;
  }
  Scene& Granted() {
    Booted();
    report().set_incarnation(1);
    report().set_newest_view((1ULL << 32) + 1);
    report().set_view_synced(true);
    seen.status.mutable_coordinator()->set_incarnation(1);
    seen.status.mutable_coordinator()->set_boot_id("boot-a");
    for (const ObservedPod& pod : seen.pods) {
      if (resources::IsMember(pod.role) && pod.phase == PodPhase::kRunning) Member(pod);
    }
    return *this;
  }
  v1alpha1::MemberStatus& Member(const ObservedPod& pod) {
    v1alpha1::MemberStatus& member = *report().add_members();
    member.mutable_id()->set_pod_uid(pod.uid);
    member.mutable_id()->set_start(1);
    member.set_pod(pod.name);
    member.set_connected(true);
    member.set_in_view(true);
    member.set_phase(v1alpha1::PHASE_RUN);
    return member;
  }

  // A coordinator and `workers` workers in the midst of training, the status settled.
  Scene& Training(std::int64_t workers = 2) {
    Prepared();
    worker().set_replicas(workers);
    Add(Role::kCoordinator, 0);
    const std::int64_t servers = seen.spec.replica_specs().parameter_server().replicas();
    for (std::int64_t i = 0; i < servers; ++i) Add(Role::kParameterServer, i);
    for (std::int64_t i = 0; i < workers; ++i) Add(Role::kWorker, i);
    Granted();
    report().set_settled_step(100);
    report().mutable_training()->mutable_progress()->set_step(100);
    SetTime(seen.status.mutable_start_time(), now);
    return Settle();
  }

  // Takes what is decided into the status, as the reconciler does.
  Scene& Settle() {
    seen.status = Decide(seen, options, now).status;
    return *this;
  }

  Scene& Finished(bool succeeded) {
    Training();
    if (succeeded) {
      report().mutable_training()->mutable_result()->set_steps(100);
    } else {
      report().mutable_training()->set_failure("the loss is not a number");
    }
    return Settle();
  }

  Scene& Suspended() {
    Prepared();
    policy().set_suspend(true);
    return Settle();
  }

  Decision Do() const { return Decide(seen, options, now); }

  absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  Observed seen;
  Options options;

 private:
  int uids_ = 0;
};

inline bool Creates(const Decision& decision, Role role, std::int64_t index) {
  return std::any_of(decision.actions.begin(), decision.actions.end(), [&](const Action& action) {
    const auto* create = std::get_if<CreatePod>(&action);
    return create != nullptr && create->role == role && create->index == index;
  });
}

template <typename Kind>
int Count(const Decision& decision) {
  return static_cast<int>(
      std::count_if(decision.actions.begin(), decision.actions.end(),
                    [](const Action& action) { return std::holds_alternative<Kind>(action); }));
}

inline const DeletePod* Deletes(const Decision& decision, std::string_view name) {
  for (const Action& action : decision.actions) {
    const auto* remove = std::get_if<DeletePod>(&action);
    if (remove != nullptr && remove->name == name) return remove;
  }
  return nullptr;
}

inline bool Emits(const Decision& decision, std::string_view reason) {
  return std::any_of(decision.actions.begin(), decision.actions.end(), [&](const Action& action) {
    const auto* event = std::get_if<EmitEvent>(&action);
    return event != nullptr && event->reason == reason;
  });
}

inline std::string ReasonOf(const Decision& decision, std::string_view type) {
  const v1alpha1::Condition* condition = FindCondition(decision.status, type);
  return condition == nullptr ? "" : condition->reason();
}

inline bool Is(const Decision& decision, std::string_view type) {
  return ConditionStatus(decision.status, type) == "True";
}

inline v1alpha1::Pod::State StateInDesired(const Decision& decision, std::string_view name) {
  for (const v1alpha1::Pod& pod : decision.supervision->desired->pods()) {
    if (pod.name() == name) return pod.state();
  }
  return v1alpha1::Pod::TERMINATED;
}

}  // namespace starling::trainingjob
