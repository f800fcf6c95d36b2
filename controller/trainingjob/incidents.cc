// SPDX-License-Identifier: Apache-2.0
// What failed, why, what was done, what it cost: each failure once, however often it is seen.
//
// One failure has two sources: the pod's own end (exit code, signal, log) and the coordinator (how
// soon it was noticed, how long it took, how many steps were repeated). They are joined here.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"
#include "controller/trainingjob/quantity.h"

namespace starling::trainingjob {
namespace {

constexpr int kMostIncidents = 20;
// A pod's end and the coordinator's notice of it lie at most so far apart.
constexpr absl::Duration kSameFailure = absl::Seconds(15);
constexpr absl::Duration kOneBlow = absl::Seconds(5);
constexpr std::int64_t kKilled = 9;
constexpr absl::Duration kClockJitter = absl::Milliseconds(250);

bool IsOutOfMemory(const ObservedPod& pod) {
  return pod.exit.has_value() && pod.exit->reason == "OOMKilled";
}

bool HasExit(const v1alpha1::Incident& incident) {
  return incident.has_exit_code() || incident.has_signal();
}

// By which a pod is given up.
bool Condemns(const v1alpha1::Incident& incident) {
  return incident.reason() == kCoordinatorLost || incident.reason() == kWorkerLost ||
         incident.reason() == kServerLost || incident.reason() == kStandbyLost;
}

bool SamePod(const v1alpha1::Incident& a, const v1alpha1::Incident& b) {
  if (!a.pod_uid().empty() && !b.pod_uid().empty()) return a.pod_uid() == b.pod_uid();
  return a.pod() == b.pod();
}

absl::Duration Between(const v1alpha1::Incident& a, const v1alpha1::Incident& b) {
  const absl::Duration difference = ToTime(a.time()) - ToTime(b.time());
  return difference < absl::ZeroDuration() ? -difference : difference;
}

bool SameExit(const v1alpha1::Incident& a, const v1alpha1::Incident& b) {
  return a.exit_code() == b.exit_code() && a.signal() == b.signal();
}

// Coordinator and controller each say in their own words that a member has gone.
bool IsLoss(const v1alpha1::Incident& incident) {
  static constexpr std::string_view kEndings[] = {"Lost", "Silent", "Hung", "Evicted", "Preempted"};
  return std::any_of(std::begin(kEndings), std::end(kEndings), [&](std::string_view ending) {
    return std::string_view(incident.reason()).ends_with(ending);
  });
}

bool Same(const v1alpha1::Incident& a, const v1alpha1::Incident& b) {
  if (!SamePod(a, b)) return false;
  const absl::Duration apart = Between(a, b);
  if (HasExit(a) && HasExit(b)) {
    // Two ends of one pod's processes are two incidents; one that is told again is told with a
    // time that differs by a little, since coordinators convert it from their own clock.
    return a.reason() == b.reason() && SameExit(a, b) && apart < kClockJitter;
  }
  if (a.pod().empty()) return a.reason() == b.reason() && apart < kClockJitter;
  return apart < kSameFailure &&
         (HasExit(a) != HasExit(b) || a.reason() == b.reason() || (IsLoss(a) && IsLoss(b)));
}

void FillIn(v1alpha1::Incident& known, const v1alpha1::Incident& incoming) {
  if (!HasExit(known) && HasExit(incoming)) {
    known.set_exit_code(incoming.exit_code());
    known.set_signal(incoming.signal());
    known.set_log_tail(incoming.log_tail());
    *known.mutable_time() = incoming.time();
    if (!incoming.message().empty()) known.set_message(incoming.message());
  }
  if (known.pod_uid().empty() && !incoming.pod_uid().empty()) {
    known.set_pod_uid(incoming.pod_uid());
  }
  // The controller's verdict on a pod that the coordinator has told of: it stands from now on, but
  // who noticed first knows better how soon that was, and that one had hung before it was silent.
  const bool verdict = Condemns(incoming) && !incoming.pod_uid().empty();
  const bool hung = std::string_view(known.reason()).ends_with("Hung");
  if (verdict && !hung && !HasExit(known) && known.reason() != incoming.reason()) {
    known.set_reason(incoming.reason());
    known.set_message(absl::StrCat(known.message(), "; it is replaced"));
  }
  if (incoming.has_detection_seconds() && !(verdict && known.has_detection_seconds())) {
    known.set_detection_seconds(incoming.detection_seconds());
  }
  if (incoming.has_recovery_seconds()) known.set_recovery_seconds(incoming.recovery_seconds());
  if (incoming.has_repeated_steps()) known.set_repeated_steps(incoming.repeated_steps());
  if (incoming.has_resumed_step()) known.set_resumed_step(incoming.resumed_step());
}

v1alpha1::Incident* Find(v1alpha1::TrainingJobStatus& status, const v1alpha1::Incident& incoming) {
  v1alpha1::Incident* nearest = nullptr;
  for (v1alpha1::Incident& known : *status.mutable_incidents()) {
    if (!Same(known, incoming)) continue;
    if (nearest == nullptr || Between(known, incoming) < Between(*nearest, incoming)) {
      nearest = &known;
    }
  }
  return nearest;
}

// The oldest go, but none of a pod that is still listed: it would be counted again.
void KeepNewest(Pass& pass) {
  auto& incidents = *pass.status.mutable_incidents();
  std::stable_sort(incidents.begin(), incidents.end(),
                   [](const v1alpha1::Incident& a, const v1alpha1::Incident& b) {
                     return ToTime(a.time()) < ToTime(b.time());
                   });
  for (int i = 0; i < incidents.size() && incidents.size() > kMostIncidents;) {
    const bool listed =
        std::any_of(pass.observed.pods.begin(), pass.observed.pods.end(),
                    [&](const ObservedPod& pod) { return pod.uid == incidents[i].pod_uid(); });
    if (listed) {
      ++i;
    } else {
      incidents.DeleteSubrange(i, 1);
    }
  }
  while (incidents.size() > kMostIncidents) incidents.DeleteSubrange(0, 1);
}

// Whether the job has as many of its kind as it wants without this one, which has left.
bool IsSpare(const Pass& pass, const ObservedPod& pod) {
  if (pod.role == Role::kCoordinator) return false;
  const auto others = static_cast<std::int64_t>(pass.UsablePods(pod.role).size());
  const Wanted wanted = pod.role == Role::kWorker ? WantedWorkers(pass) : WantedServers(pass);
  return others >= wanted.replicas;
}

int RecordedAndListed(const Pass& pass) {
  int count = 0;
  for (const ObservedPod& pod : pass.observed.pods) {
    if (pod.Terminated() && IsRecorded(pass.status, pod)) ++count;
  }
  return count;
}

// The coordinator repeats what has long been dropped.
bool IsForgotten(const Pass& pass, const v1alpha1::Incident& incident) {
  return pass.status.incidents_size() >= kMostIncidents &&
         ToTime(incident.time()) < ToTime(pass.status.incidents(0).time()) + kClockJitter;
}

constexpr char kPreemption[] = "PreemptionByScheduler";

std::string HowItEnded(const Pass& pass, const ObservedPod& pod) {
  const std::string who = pass.options.avoid_nodes && !pod.node.empty()
                              ? absl::StrCat(pod.name, " on ", pod.node)
                              : pod.name;
  if (pod.disrupted) {
    const std::string& why = pod.reason.empty() ? pod.disruption : pod.reason;
    return absl::StrCat(who, pod.disruption == kPreemption ? " was preempted" : " was evicted",
                        " (", why.empty() ? "disruption" : why, ")");
  }
  if (!pod.exit.has_value()) return absl::StrCat(who, " failed (", pod.reason, ")");
  if (IsOutOfMemory(pod)) {
    return absl::StrCat(who, " was killed because it used more memory than it may",
                        pod.memory > 0 ? absl::StrCat(" (", FormatBytes(pod.memory), ")") : "");
  }
  if (pod.exit->signal > 0) {
    return absl::StrCat(who, " was killed by signal ", pod.exit->signal);
  }
  return absl::StrCat(who, " exited with code ", pod.exit->code);
}

std::string RoleWord(const ObservedPod& pod) { return std::string(resources::RoleWord(pod.role)); }

v1alpha1::Incident EndOf(const Pass& pass, const ObservedPod& pod) {
  const std::string role = RoleWord(pod);
  v1alpha1::Incident incident;
  SetTime(incident.mutable_time(), pod.exit.has_value() ? pod.exit->finished : pass.now);
  incident.set_pod(pod.name);
  incident.set_pod_uid(pod.uid);
  if (pod.disrupted) {
    incident.set_reason(role + (pod.disruption == kPreemption ? "Preempted" : "Evicted"));
  } else if (IsOutOfMemory(pod)) {
    incident.set_reason("OOMKilled");
  } else if (pod.phase == PodPhase::kSucceeded) {
    incident.set_reason(role + "LeftEarly");
  } else {
    incident.set_reason(role + "Failed");
  }
  incident.set_message(HowItEnded(pass, pod));
  incident.set_exit_code(pod.exit.has_value() ? pod.exit->code : -1);
  if (pod.exit.has_value()) {
    incident.set_signal(pod.exit->signal);
    incident.set_log_tail(pod.exit->message);
  }
  return incident;
}

// Several pods killed at once are one failure: a machine that went down, a tree of processes that
// was killed. The same pod again is another one.
bool IsPartOfOneBlow(const Pass& pass, const ObservedPod& pod) {
  if (!pod.exit.has_value() || pod.exit->signal != kKilled) return false;
  bool others = false;
  for (const v1alpha1::Incident& incident : pass.status.incidents()) {
    if (incident.signal() != kKilled) continue;
    const absl::Duration before = pod.exit->finished - ToTime(incident.time());
    if (incident.pod() == pod.name && before < kSameFailure * 2) return false;
    others |= incident.pod() != pod.name && before > -kOneBlow && before < kOneBlow;
  }
  return others;
}

// A program that ran for so long has done something: a job of days may fail once in a while.
constexpr absl::Duration kLongRun = absl::Minutes(10);

bool RanForLong(const Pass& pass, const ObservedPod& pod) {
  return pass.OwnContainer() && pod.exit.has_value() && pod.started > absl::UnixEpoch() &&
         pod.exit->finished - pod.started >= kLongRun;
}

void Count(Pass& pass, const ObservedPod& pod) {
  pass.status.set_restarts(pass.status.restarts() + 1);
  if (!IsFailure(pass, pod) || IsPartOfOneBlow(pass, pod)) return;
  NoteFailureOn(pass, pod);
  if (RanForLong(pass, pod)) pass.status.set_failures(0);
  if (pass.status.failures() == 0) {
    std::int64_t settled = pass.status.progress().step();
    if (pass.report != nullptr) settled = std::max(settled, pass.report->settled_step());
    pass.status.set_failures_since_step(std::max(pass.status.failures_since_step(), settled));
  }
  pass.status.set_failures(pass.status.failures() + 1);
}

}  // namespace

bool AddIncident(Pass& pass, v1alpha1::Incident incident) {
  const bool ended = HasExit(incident);
  if (v1alpha1::Incident* known = Find(pass.status, incident); known != nullptr) {
    const bool news = ended && !HasExit(*known);
    FillIn(*known, incident);
    return news;
  }
  pass.Event(/*warning=*/true, incident.reason(), "Recover",
             absl::StrCat(incident.pod(), ": ", incident.message()));
  *pass.status.add_incidents() = std::move(incident);
  return ended;
}

bool IsRecorded(const v1alpha1::TrainingJobStatus& status, const ObservedPod& pod) {
  for (const v1alpha1::Incident& incident : status.incidents()) {
    if (incident.pod_uid() != pod.uid || !incident.has_exit_code()) continue;
    if (!pod.exit.has_value() || ToTime(incident.time()) == pod.exit->finished) return true;
  }
  return false;
}

bool IsCondemned(const v1alpha1::TrainingJobStatus& status, const ObservedPod& pod) {
  const auto& incidents = status.incidents();
  return std::any_of(
      incidents.begin(), incidents.end(), [&pod](const v1alpha1::Incident& incident) {
        return incident.pod_uid() == pod.uid && !HasExit(incident) && Condemns(incident);
      });
}

bool IsFailure(const Pass& pass, const ObservedPod& pod) {
  if (!pod.Terminated() || pod.terminating || pod.disrupted) return false;
  if (IsOfFormerRound(pass, pod)) return false;
  if (pod.phase == PodPhase::kSucceeded) {
    if (pass.OwnContainer()) return false;
    // A member that leaves by a drain or a suspension has not failed; one that leaves unasked has.
    return !IsSpare(pass, pod) && ConditionStatus(pass.status, "Suspended") != "Unknown";
  }
  return true;
}

namespace {

// Evicted or preempted and not ended yet: it is told of immediately, since a pod that ends while it
// is being deleted may never be seen ended.
void RecordDisruption(Pass& pass, const ObservedPod& pod) {
  const auto& incidents = pass.status.incidents();
  const bool told = std::any_of(
      incidents.begin(), incidents.end(),
      [&](const v1alpha1::Incident& incident) { return incident.pod_uid() == pod.uid; });
  if (told || pod.Terminated() || !pod.terminating || pod.disruption.empty()) return;
  v1alpha1::Incident incident;
  SetTime(incident.mutable_time(), pass.now);
  incident.set_pod(pod.name);
  incident.set_pod_uid(pod.uid);
  incident.set_reason(RoleWord(pod) + (pod.disruption == kPreemption ? "Preempted" : "Evicted"));
  incident.set_message(absl::StrCat(HowItEnded(pass, pod), "; it is replaced"));
  pass.status.set_restarts(pass.status.restarts() + 1);
  AddIncident(pass, std::move(incident));
}

// A kill for want of memory that is answered with more memory is no failure to be counted: there
// is an end to it, the maximum.
void RecordEnd(Pass& pass, const ObservedPod& pod) {
  v1alpha1::Incident incident = EndOf(pass, pod);
  std::optional<std::string> remedy;
  if (IsOutOfMemory(pod) && IsFailure(pass, pod)) remedy = RaiseMemory(pass, pod);
  if (remedy.has_value()) {
    incident.set_message(absl::StrCat(incident.message(), "; ", *remedy));
    pass.status.set_restarts(pass.status.restarts() + 1);
  } else {
    Count(pass, pod);
  }
  AddIncident(pass, std::move(incident));
}

}  // namespace

void RecordIncidents(Pass& pass) {
  // Members that are let go by a suspension are lost to the coordinator only.
  if (pass.report != nullptr && ConditionStatus(pass.status, "Suspended") != "Unknown") {
    for (const v1alpha1::Incident& incident : pass.report->incidents()) {
      // Known with its exit: the supervisor has started the process again.
      if (!IsForgotten(pass, incident) && AddIncident(pass, incident)) {
        pass.status.set_restarts(pass.status.restarts() + 1);
      }
    }
  }
  int recorded = RecordedAndListed(pass);
  for (const ObservedPod& pod : pass.observed.pods) {
    RecordDisruption(pass, pod);
    if (!pod.Terminated() || pod.terminating || IsOfFormerRound(pass, pod)) continue;
    // A node that is told to stop ends its pods in order: no incident.
    if (!IsFailure(pass, pod) && (!pod.disrupted || pod.reason == kNodeShutdown)) continue;
    if (IsRecorded(pass.status, pod)) continue;
    // The rest has its turn when these are gone: an incident that falls out of the list while its
    // pod is there would be counted again.
    if (++recorded > kMostIncidents / 2) break;
    RecordEnd(pass, pod);
    // The rest of its round goes with it.
    if (pass.OwnContainer()) break;
  }
  KeepNewest(pass);
}

}  // namespace starling::trainingjob
