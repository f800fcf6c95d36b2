// SPDX-License-Identifier: Apache-2.0
// What a pod's status tells: how it ended, why it does not run, what is about to become of it.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "controller/kube/messages.h"
#include "controller/kube/objects.h"
#include "controller/trainingjob/observe.h"
#include "controller/trainingjob/quantity.h"
#include "controller/trainingjob/reasons.h"

namespace starling::trainingjob {
namespace {

// Reasons of a pod's end that are nobody's failure.
constexpr std::array<std::string_view, 8> kDisruptions = {
    "Evicted",  "Preempted",    "Preempting", kNodeShutdown,
    "NodeLost", "NodeAffinity", "Shutdown",   "Terminated"};

// Why a container waits, in the kubelet's words, and what we call it.
constexpr std::pair<std::string_view, std::string_view> kWaiting[] = {
    {"ErrImagePull", kImagePullFailed},
    {"ImagePullBackOff", kImagePullFailed},
    {"ErrImageNeverPull", kImagePullFailed},
    {"InvalidImageName", kImagePullFailed},
    {"ImageInspectError", kImagePullFailed},
    {"RegistryUnavailable", kImagePullFailed},
    {"SignatureValidationFailed", kImagePullFailed},
    {"CreateContainerConfigError", kContainerNotCreated},
    {"CreateContainerError", kContainerNotCreated},
    {"RunContainerError", kContainerNotCreated},
    {"PreCreateHookError", kContainerNotCreated},
    {"PreStartHookError", kContainerNotCreated},
};

constexpr int kSignalCodes = 128;
constexpr int kKill = 9;

PodPhase ReadPhase(const std::string& phase) {
  if (phase == "Pending" || phase.empty()) return PodPhase::kPending;
  if (phase == "Succeeded") return PodPhase::kSucceeded;
  if (phase == "Failed") return PodPhase::kFailed;
  return PodPhase::kRunning;  // Unknown too: it may run
}

// The supervisor's record of the end, if the termination message is one: it knows the signal, the
// time to the microsecond, and whether memory ran out.
void ReadRecord(PodExit& exit) {
  if (!exit.message.starts_with('{')) return;
  const Json record = Json::parse(exit.message, nullptr, /*allow_exceptions=*/false);
  if (!record.contains("exitCode")) return;  // nothing else than an object does
  exit.message = kube::StringAt(record, "/message");
  exit.signal = kube::IntAt(record, "/signal", exit.signal);
  if (const std::string reason = kube::StringAt(record, "/reason"); reason == "OOMKilled") {
    exit.reason = reason;
  }
  exit.finished =
      kube::ParseTimestamp(kube::StringAt(record, "/finishedAt")).value_or(exit.finished);
}

std::optional<PodExit> ReadExit(const kubernetes::Pod& pod) {
  for (const kubernetes::ContainerStatus& status : pod.status().container_statuses()) {
    if (!status.state().has_terminated() || status.name() != resources::kContainer) continue;
    const kubernetes::ContainerStateTerminated& ended = status.state().terminated();
    PodExit exit;
    exit.code = ended.exit_code();
    exit.signal = ended.signal();
    exit.reason = ended.reason();
    exit.message = ended.message();
    exit.finished =
        kube::ToTime(ended.finished_at().has_seconds() ? ended.finished_at()
                                                       : pod.metadata().creation_timestamp());
    ReadRecord(exit);
    // Container runtimes report a killed process by its code alone.
    if (exit.signal == 0 && exit.code == kSignalCodes + kKill) exit.signal = kKill;
    return exit;
  }
  return std::nullopt;
}

// The scheduler's word on a pod without a place.
std::optional<PodProblem> ReadScheduling(const kubernetes::Pod& pod) {
  const kubernetes::Condition* scheduled = kube::FindCondition(pod, "PodScheduled");
  if (scheduled == nullptr || scheduled->status() != "False") return std::nullopt;
  PodProblem problem;
  problem.reason = scheduled->reason() == "SchedulingGated" ? kSchedulingGated : kUnschedulable;
  problem.message = scheduled->message();
  problem.since = kube::ToTime(scheduled->last_transition_time());
  return problem;
}

// The kubelet's word on a container that does not start.
std::optional<PodProblem> ReadWaiting(const kubernetes::Pod& pod) {
  for (const auto* list :
       {&pod.status().init_container_statuses(), &pod.status().container_statuses()}) {
    for (const kubernetes::ContainerStatus& status : *list) {
      const kubernetes::ContainerStateWaiting& waiting = status.state().waiting();
      for (const auto& [kubelets, ours] : kWaiting) {
        if (waiting.reason() != kubelets) continue;
        PodProblem problem;
        problem.reason = ours;
        problem.message = absl::StrCat("container ", status.name(), ": ", waiting.reason(), ": ",
                                       waiting.message());
        problem.since = kube::ToTime(pod.status().start_time());
        return problem;
      }
    }
  }
  return std::nullopt;
}

// Where there is only the one field, as on one machine, it is that.
std::vector<std::string> ReadAddresses(const kubernetes::Pod& pod) {
  std::vector<std::string> addresses;
  for (const kubernetes::PodIP& address : pod.status().pod_ips()) {
    addresses.push_back(address.ip());
  }
  const std::string& first = pod.status().pod_ip();
  if (addresses.empty() && !first.empty()) addresses.push_back(first);
  return addresses;
}

std::int64_t ReadMemory(const kubernetes::Pod& pod) {
  for (const kubernetes::Container& container : pod.spec().containers()) {
    if (container.name() != resources::kContainer) continue;
    const auto memory = container.resources().limits().find("memory");
    return memory == container.resources().limits().end() ? 0 : ParseBytes(memory->second.string());
  }
  return 0;
}

std::vector<std::string> ReadAvoided(const kubernetes::Pod& pod) {
  const std::string text = kube::AnnotationOf(pod, kAvoidAnnotation);
  if (text.empty()) return {};
  return absl::StrSplit(text, ',');
}

// "0,1,3/4" and the round's number; a world of round 0 where they make no sense.
World ReadWorld(const kubernetes::Pod& pod) {
  World world;
  const std::string text = kube::AnnotationOf(pod, kWorldAnnotation);
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &world.wanted)) return {};
  for (const auto member : absl::StrSplit(parts[0], ',')) {
    if (!absl::SimpleAtoi(member, &world.members.emplace_back())) return {};
  }
  if (!absl::SimpleAtoi(kube::AnnotationOf(pod, kRoundAnnotation), &world.round)) return {};
  return world;
}

void ReadDisruption(const kubernetes::Pod& pod, ObservedPod& seen) {
  const bool targeted = kube::IsConditionTrue(pod, "DisruptionTarget");
  if (targeted) seen.disruption = kube::FindCondition(pod, "DisruptionTarget")->reason();
  seen.disrupted = targeted || std::find(kDisruptions.begin(), kDisruptions.end(), seen.reason) !=
                                   kDisruptions.end();
}

}  // namespace

std::map<std::string, std::string> AnnotationsOf(const CreatePod& create) {
  std::map<std::string, std::string> annotations;
  if (!create.avoid.empty()) {
    annotations[std::string(kAvoidAnnotation)] = absl::StrJoin(create.avoid, ",");
  }
  if (create.world.round > 0) {
    annotations[std::string(kRoundAnnotation)] = absl::StrCat(create.world.round);
    annotations[std::string(kWorldAnnotation)] =
        absl::StrCat(absl::StrJoin(create.world.members, ","), "/", create.world.wanted);
  }
  return annotations;
}

std::optional<ObservedPod> ReadPod(const JobIdentity& job, const kubernetes::Pod& pod) {
  if (kube::ControllerUidOf(pod) != job.uid) return std::nullopt;
  const auto role = resources::ParseRole(kube::LabelOf(pod, resources::kRoleLabel));
  ObservedPod seen;
  if (!role.has_value() ||
      !absl::SimpleAtoi(kube::LabelOf(pod, resources::kIndexLabel), &seen.index)) {
    return std::nullopt;
  }
  seen.name = kube::NameOf(pod);
  seen.uid = kube::UidOf(pod);
  seen.ip = pod.status().pod_ip();
  seen.ips = ReadAddresses(pod);
  // What the cluster's DNS makes a name of: a template may place a pod under another service.
  if (pod.spec().subdomain() == resources::ServiceName(job.name)) {
    seen.host = pod.spec().hostname();
  }
  seen.node = pod.spec().node_name();
  seen.role = *role;
  seen.phase = ReadPhase(pod.status().phase());
  seen.reason = pod.status().reason();
  seen.ready = seen.phase == PodPhase::kRunning && kube::IsConditionTrue(pod, "Ready");
  seen.terminating = kube::IsBeingDeleted(pod);
  seen.deletion_due = kube::ToTime(pod.metadata().deletion_timestamp());
  seen.created = kube::ToTime(pod.metadata().creation_timestamp());
  seen.started = kube::ToTime(pod.status().start_time());
  seen.exit = ReadExit(pod);
  seen.memory = ReadMemory(pod);
  seen.avoids = ReadAvoided(pod);
  seen.world = ReadWorld(pod);
  ReadDisruption(pod, seen);
  if (seen.phase == PodPhase::kPending) {
    seen.problem = ReadScheduling(pod);
    if (!seen.problem.has_value()) seen.problem = ReadWaiting(pod);
  }
  return seen;
}

}  // namespace starling::trainingjob
