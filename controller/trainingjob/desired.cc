// SPDX-License-Identifier: Apache-2.0
// What the coordinator is told: its incarnation, once; what is wanted, whole, again and again.
#include <algorithm>
#include <optional>

#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

v1alpha1::Pod::State StateOf(const Pass& pass, const ObservedPod& pod) {
  if (pod.Terminated()) return v1alpha1::Pod::TERMINATED;
  const auto& surplus = pass.decision.surplus;
  const bool leaves =
      !pass.Usable(pod) || std::find(surplus.begin(), surplus.end(), pod.uid) != surplus.end();
  return leaves ? v1alpha1::Pod::DRAINING : v1alpha1::Pod::LIVE;
}

v1alpha1::Pod Describe(const Pass& pass, const ObservedPod& pod) {
  v1alpha1::Pod described;
  described.set_uid(pod.uid);
  described.set_name(pod.name);
  described.set_role(std::string(resources::RoleName(pod.role)));
  described.set_index(pod.index);
  described.set_ip(pod.ip);
  described.set_node(pod.node);
  described.set_state(StateOf(pass, pod));
  return described;
}

// Pods that may have been members. One without an address never ran.
std::vector<const ObservedPod*> Members(const Pass& pass) {
  std::vector<const ObservedPod*> members;
  for (const ObservedPod& pod : pass.observed.pods) {
    if (resources::IsMember(pod.role) && !pod.ip.empty()) members.push_back(&pod);
  }
  return members;
}

// Whom it has for a standby: as long as the status says so, whatever is heard of that one.
void NameStandby(const Pass& pass, v1alpha1::Desired& desired) {
  const v1alpha1::CoordinatorGrant& grant = pass.status.coordinator();
  if (!grant.has_standby() || grant.standby().follows() != grant.incarnation()) return;
  v1alpha1::StandbyPod& standby = *desired.mutable_standby();
  standby.set_incarnation(static_cast<std::uint64_t>(grant.standby().incarnation()));
  standby.set_uid(grant.standby().pod_uid());
  for (const ObservedPod& pod : pass.observed.pods) {
    if (pod.uid == standby.uid()) standby.set_ip(pod.ip);
  }
}

v1alpha1::Grant GrantFor(const Pass& pass) {
  v1alpha1::Grant grant;
  grant.set_incarnation(static_cast<std::uint64_t>(pass.status.coordinator().incarnation()));
  grant.set_boot_id(pass.status.coordinator().boot_id());
  grant.set_newest_view(static_cast<std::uint64_t>(pass.status.newest_view()));
  *grant.mutable_goodput() = pass.status.goodput();
  grant.set_settled_step(pass.status.progress().step());
  for (const ObservedPod* pod : Members(pass)) {
    if (!pod->Terminated()) *grant.add_roster() = Describe(pass, *pod);
  }
  return grant;
}

// Members act on settings of a higher number only, and keep the number in their checkpoints. So it
// rises with every change of what the settings say: with the spec's generation and with a halt that
// the spec does not know of, and so that a later process may take such a halt back, with each
// coordinator and each controller. It stays below 2^53, like all numbers of ours.
std::int64_t SettingsGeneration(const Pass& pass) {
  const auto field = [](std::int64_t value, int bits) {
    return std::clamp<std::int64_t>(value, 0, (std::int64_t{1} << bits) - 1);
  };
  std::int64_t number = field(pass.options.lease_transition, 12);
  number = (number << 16) | field(pass.status.coordinator().incarnation(), 16);
  number = (number << 24) | field(pass.observed.generation, 24);
  return (number << 1) | (pass.halt ? 1 : 0);
}

v1alpha1::Desired DesiredFor(const Pass& pass) {
  const v1alpha1::TrainingJobSpec& spec = pass.observed.spec;
  v1alpha1::Desired desired;
  const std::int64_t workers = WantedWorkers(pass).replicas;
  desired.set_workers(workers);
  desired.set_min_workers(
      std::clamp<std::int64_t>(spec.replica_specs().worker().min_replicas(), 1, workers));
  if (const std::int64_t servers = WantedServers(pass).replicas; servers > 0) {
    desired.set_servers(servers);
    desired.set_min_servers(std::clamp<std::int64_t>(
        spec.replica_specs().parameter_server().min_replicas(), 1, servers));
  }
  for (const ObservedPod* pod : Members(pass)) *desired.add_pods() = Describe(pass, *pod);
  v1alpha1::Settings& settings = *desired.mutable_settings();
  settings.set_generation(SettingsGeneration(pass));
  // Where the file says nothing of it, the end is the program's own to say (workload.pytorch).
  if (spec.has_stop()) *settings.mutable_stop() = spec.stop();
  *settings.mutable_checkpoint() = spec.checkpoint();
  settings.set_halt(pass.halt);
  desired.set_checkpoint_request(OpenCheckpointRequest(pass));
  desired.set_trace_request(OpenTraceRequest(pass));
  desired.set_finished(pass.Finished());
  NameStandby(pass, desired);
  return desired;
}

// A stream to the pod, and for whom what is said there is meant: nobody, before it has been heard.
std::optional<Supervision> StreamTo(const Pass& pass, const ObservedPod* pod) {
  if (pod == nullptr || pod->ip.empty() || pod->phase != PodPhase::kRunning) return std::nullopt;
  Supervision supervision;
  supervision.pod_uid = pod->uid;
  supervision.address = pod->ip;
  const v1alpha1::CoordinatorReport* report = pass.ReportOf(pod);
  if (report != nullptr) supervision.boot_id = report->boot_id();
  return supervision;
}

// It is granted its number where it has another or none, and then what is wanted.
void SuperviseLeader(Pass& pass) {
  pass.decision.supervision = StreamTo(pass, pass.leader);
  std::optional<Supervision>& said = pass.decision.supervision;
  const v1alpha1::CoordinatorGrant& grant = pass.status.coordinator();
  if (!said) return;
  if (said->boot_id.empty() || said->boot_id != grant.boot_id()) {
    said->boot_id.clear();
    return;
  }
  const std::uint64_t incarnation = pass.ReportOf(pass.leader)->incarnation();
  if (incarnation < static_cast<std::uint64_t>(grant.incarnation())) said->grant = GrantFor(pass);
  said->desired = DesiredFor(pass);
}

// It is told whom it follows, and the end of the job; all else it has from that one.
void SuperviseStandby(Pass& pass) {
  pass.decision.standby_supervision = StreamTo(pass, pass.standby);
  std::optional<Supervision>& said = pass.decision.standby_supervision;
  const v1alpha1::StandbyGrant& granted = pass.status.coordinator().standby();
  if (!said) return;
  if (said->boot_id.empty() || said->boot_id != granted.boot_id()) {
    if (!pass.Finished()) said->boot_id.clear();
  } else if (pass.ReportOf(pass.standby)->standby().incarnation() <
             static_cast<std::uint64_t>(granted.incarnation())) {
    said->grant.emplace();
    said->grant->set_incarnation(static_cast<std::uint64_t>(granted.incarnation()));
    said->grant->set_boot_id(granted.boot_id());
    said->grant->set_follows(static_cast<std::uint64_t>(granted.follows()));
  }
  if (pass.Finished()) said->desired.emplace().set_finished(true);
}

}  // namespace

void Supervise(Pass& pass) {
  SuperviseLeader(pass);
  SuperviseStandby(pass);
}

}  // namespace starling::trainingjob
