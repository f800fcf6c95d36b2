// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/scheduling_facts.h"

#include "controller/kube/objects.h"
#include "controller/scheduling/kueue.h"
#include "controller/trainingjob/build.h"
#include "controller/trainingjob/pass.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

// A pod of the role as it would be made; which one makes no difference here.
Json SamplePod(const Observed& observed, Role role, const resources::Platform& platform) {
  CreatePod create{.role = role, .index = 0, .config_generation = observed.generation};
  create.world = {.round = 1, .members = {0}, .wanted = 1};
  const absl::StatusOr<Json> pod = BuildJobPod(observed.job, observed.spec, create, platform);
  return pod.ok() ? *pod : Json();
}

scheduling::RoleFacts FactsOfRole(const Observed& observed, Role role, std::int64_t wanted,
                                  std::int64_t least) {
  scheduling::RoleFacts facts{
      .role = role, .pod = {}, .wanted = wanted, .least = std::min(least, wanted)};
  for (const ObservedPod& pod : observed.pods) {
    if (pod.role != role || pod.Terminated()) continue;
    ++facts.live;
    if (pod.ready) ++facts.ready;
  }
  return facts;
}

void SetOutcome(const v1alpha1::TrainingJobStatus& status, scheduling::JobFacts& facts) {
  const std::pair<const char*, scheduling::Outcome> ends[] = {
      {"Succeeded", scheduling::Outcome::kSucceeded}, {"Failed", scheduling::Outcome::kFailed}};
  for (const auto& [type, outcome] : ends) {
    if (ConditionStatus(status, type) != "True") continue;
    facts.outcome = outcome;
    facts.outcome_message = FindCondition(status, type)->message();
  }
}

void SetPolicy(const v1alpha1::RunPolicy& policy, scheduling::JobFacts& facts) {
  facts.suspend = policy.suspend();
  const v1alpha1::SchedulingPolicy& scheduling = policy.scheduling_policy();
  facts.queue = scheduling.queue();
  facts.priority_class = scheduling.priority_class();
  if (scheduling.has_min_available()) facts.min_available = scheduling.min_available();
  if (scheduling.has_schedule_timeout_seconds()) {
    facts.timeout_seconds = scheduling.schedule_timeout_seconds();
  }
}

}  // namespace

scheduling::JobFacts FactsOf(const JobObjects& objects, const Reading& reading,
                             const resources::Platform& platform) {
  const Observed& observed = reading.observed;
  scheduling::JobFacts facts;
  facts.job = observed.job;
  facts.owner = kube::ControllerReference(*objects.job);
  for (const auto& [key, value] : kube::At(*objects.job, "/metadata/labels").items()) {
    if (value.is_string()) facts.labels[key] = value.get<std::string>();
  }
  facts.generation = observed.generation;
  SetPolicy(observed.spec.run_policy(), facts);
  SetOutcome(observed.status, facts);
  if (!observed.spec.workload().has_container()) {
    const bool standby = observed.spec.replica_specs().coordinator().standby();
    facts.roles.push_back(FactsOfRole(observed, Role::kCoordinator, standby ? 2 : 1, 1));
  }
  if (resources::HasServers(observed.spec)) {
    const auto& server = observed.spec.replica_specs().parameter_server();
    facts.roles.push_back(FactsOfRole(observed, Role::kParameterServer,
                                      WantedServers(observed.spec).replicas,
                                      std::max<std::int64_t>(server.min_replicas(), 1)));
  }
  const v1alpha1::WorkerSpec& worker = observed.spec.replica_specs().worker();
  facts.roles.push_back(FactsOfRole(observed, Role::kWorker, WantedWorkers(observed.spec).replicas,
                                    std::max<std::int64_t>(worker.min_replicas(), 1)));
  // Only queues ask what a pod needs, and few jobs have one.
  if (scheduling::QueueOf(facts).empty()) return facts;
  for (scheduling::RoleFacts& role : facts.roles) {
    role.pod = SamplePod(observed, role.role, platform);
    if (role.pod.is_null()) role.wanted = role.least = 0;
  }
  return facts;
}

Queueing QueueingOf(const scheduling::Verdict& verdict) {
  return {.hold = verdict.hold,
          .reason = verdict.reason,
          .message = verdict.message,
          .worker_limit = verdict.worker_limit,
          .limit_message = verdict.limit_message,
          .server_limit = verdict.server_limit,
          .server_limit_message = verdict.server_limit_message,
          .warning = verdict.warning};
}

}  // namespace starling::trainingjob
