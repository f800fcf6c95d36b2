// SPDX-License-Identifier: Apache-2.0
#include <sys/epoll.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/local/container_plan.h"
#include "controller/local/node.h"
#include "controller/local/pod_status.h"
#include "controller/local/volumes.h"

namespace starling::local {
namespace {

using kube::Json;

constexpr int kCannotStart = 127;  // as shells say it
constexpr char kNodeName[] = "local";

Outcome StartError(const absl::Status& why, absl::Time now) {
  Outcome outcome;
  outcome.exit_code = kCannotStart;
  outcome.reason = "StartError";
  outcome.message = std::string(why.message());
  outcome.started = outcome.finished = now;
  return outcome;
}

// Whether waiting may help: for an object that somebody has yet to create, for a busy machine.
bool MayHeal(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsResourceExhausted(status);
}

std::string VolumesFolder(const std::string& pod_folder) { return pod_folder + "/volumes"; }

std::shared_ptr<const Json> Share(Json json) {
  return std::make_shared<const Json>(std::move(json));
}

}  // namespace

void Node::ReconcilePod(const runtime::Key& key) {
  const Object pod = pods_.Get(key);
  DropOthers(key, pod == nullptr ? "" : kube::UidOf(*pod));
  if (pod == nullptr) return;
  const std::string node = kube::StringAt(*pod, "/spec/nodeName");
  if (!node.empty() && node != kNodeName) return;
  const bool deleting = kube::IsBeingDeleted(*pod);
  Entry& entry = EntryOf(*pod);
  if (!entry.process && !entry.ended && !HasEnded(*pod)) Recover(*pod, entry);
  // Somebody else has ended it: what was to be said before that is not so any more.
  if (HasEnded(*pod) && !entry.ended) entry.status.reset();
  Flush(entry);
  if (HasEnded(*pod) || entry.ended) {
    if (entry.process) entry.process->Kill();  // somebody else has ended it, such as an eviction
    if (deleting && !entry.process && entry.status == nullptr) FinishDeletion(*pod, entry);
  } else if (deleting) {
    if (entry.process) Terminate(*pod, entry);
    if (!entry.process) FinishDeletion(*pod, entry);
  } else if (!entry.process && !stopping_) {
    StartPod(*pod, entry);
  }
}

// Earlier pods of that name are not in the store any more, so their processes must not run.
void Node::DropOthers(const runtime::Key& key, const std::string& present_uid) {
  std::vector<std::string> gone;
  for (auto& [uid, entry] : entries_) {
    if (entry.key != key || uid == present_uid) continue;
    if (entry.process) {
      entry.process->Kill();
    } else {
      gone.push_back(uid);
    }
  }
  for (const std::string& uid : gone) Forget(uid);
}

Node::Entry& Node::EntryOf(const Json& pod) {
  const std::string uid = kube::UidOf(pod);
  const auto [position, is_new] = entries_.try_emplace(uid);
  Entry& entry = position->second;
  if (is_new) {
    entry.key = kube::KeyOf(pod);
    entry.uid = uid;
    entry.job = JobOfPod(pod);
    entry.folder = PodFolder(options_.home, pod);
    // Of a pod that a predecessor saw end.
    entry.ended = HasEnded(pod);
  }
  return entry;
}

// A pod that has not ended as far as the store knows, and of which this kubelet knows nothing: a
// predecessor may have started it.
void Node::Recover(const Json& pod, Entry& entry) {
  const bool was_running = kube::StringAt(pod, "/status/phase") == "Running";
  auto state = ReadPodState(entry.folder);
  if (!state.ok() && !was_running) return;
  if (!state.ok()) {
    state = PodState{.key = entry.key,
                     .uid = entry.uid,
                     .ip = "",
                     .boot_id = "",
                     .process = {},
                     .started = clock_.WallNow()};
  }
  entry.ip = state->ip;
  if (state->process.pid == 0) {
    if (const auto found = FindPodProcess(options_.home, entry.uid)) {
      state->process = *found;
    } else if (!was_running) {
      return;  // it was not started after all
    }
  }
  auto process = PodProcess::Adopt(*state, entry.folder);
  if (!process.ok()) {
    KillPodProcesses(entry.uid);
    OnEnded(pod, entry, OutcomeFromFolder(entry.folder, *state, clock_.WallNow()));
    return;
  }
  log::Info("pod adopted", {{"pod", entry.key.ToString()}, {"pid", state->process.pid}});
  if (!entry.job.empty()) job_folders_.Hold(entry.job).IgnoreError();
  OnRunning(pod, entry, std::move(*process));
}

void Node::StartPod(const Json& pod, Entry& entry) {
  if (!entry.job.empty() && IsGone(entry.job)) return;  // its collection is under way
  auto plan = Prepare(pod, entry);
  if (!plan.ok()) {
    if (MayHeal(plan.status())) return OnWaiting(pod, entry, plan.status());
    return OnEnded(pod, entry, StartError(plan.status(), clock_.WallNow()));
  }
  PodState state{.key = entry.key,
                 .uid = entry.uid,
                 .ip = entry.ip,
                 .boot_id = process::BootId(),
                 .process = {},
                 .started = clock_.WallNow()};
  // First that it is about to start, so that a successor finds it whenever we die.
  if (const absl::Status written = WritePodState(entry.folder, state); !written.ok()) {
    return OnWaiting(pod, entry, written);
  }
  auto process = PodProcess::Start(std::move(*plan), std::move(state), entry.folder);
  if (process.ok()) return OnRunning(pod, entry, std::move(*process));
  if (absl::IsUnavailable(process.status()) || absl::IsResourceExhausted(process.status())) {
    return OnWaiting(pod, entry, process.status());
  }
  OnEnded(pod, entry, StartError(process.status(), clock_.WallNow()));
}

absl::StatusOr<process::LaunchPlan> Node::Prepare(const Json& pod, Entry& entry) {
  if (!entry.job.empty()) {
    known_jobs_[{.ns = entry.job.ns, .name = entry.job.name}][entry.job.uid] = entry.job;
    RETURN_IF_ERROR(job_folders_.Hold(entry.job));
  }
  RETURN_IF_ERROR(MakeFolder(entry.folder));
  ASSIGN_OR_RETURN(const Json* container, OnlyContainer(pod));
  if (entry.ip.empty()) {
    ASSIGN_OR_RETURN(entry.ip, addresses_.Take());
  }
  const ObjectReader read = [&](const kube::ResourceKind& kind, const std::string& name) {
    return client_.Get(kind, {.ns = entry.key.ns, .name = name});
  };
  const PodFacts facts{.pod = pod, .ip = entry.ip};
  ASSIGN_OR_RETURN(const auto mounts,
                   ProjectVolumes(facts, *container, VolumesFolder(entry.folder), read));
  ASSIGN_OR_RETURN(auto plan, PlanContainer(facts, *container, mounts, options_.environment,
                                            options_.program_folder, read));
  SetVariable(plan.environment, kHomeVariable, options_.home);
  SetVariable(plan.environment, kPodUidVariable, entry.uid);
  SetVariable(plan.environment, "STARLING_EXIT_RECORD", entry.folder + "/exit.json");
  if (!entry.job.empty()) {
    SetVariable(plan.environment, "STARLING_ALIVE_FIFO",
                JobFolder(options_.home, entry.job) + "/alive");
  }
  SetVariable(plan.environment, "STARLING_OOM_COUNTER", "none");  // the group is shared with all
  if (plan.working_directory.empty()) plan.working_directory = entry.folder;
  return plan;
}

void Node::OnRunning(const Json& pod, Entry& entry, PodProcess process) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = process.descriptor()}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, process.descriptor(), &event);
  const PodState& state = process.state();
  log::Info("pod runs",
            {{"pod", entry.key.ToString()}, {"pid", state.process.pid}, {"address", entry.ip}});
  entry.placement = Share(PlacementPatch(pod, state.process.pid));
  entry.status = Share(RunningPatch(pod, state, clock_.WallNow()));
  entry.process.emplace(std::move(process));
  Flush(entry);
}

void Node::OnWaiting(const Json& pod, Entry& entry, const absl::Status& why) {
  entry.retry_at = clock_.Now() + options_.retry;
  const std::string text(why.message());
  if (entry.waiting == text) return;
  entry.waiting = text;
  log::Warning("pod waits", {{"pod", entry.key.ToString()}, {"why", text}});
  entry.status = Share(WaitingPatch(pod, "CreateContainerConfigError", text, clock_.WallNow()));
  Flush(entry);
}

void Node::OnEnded(const Json& pod, Entry& entry, const Outcome& outcome) {
  entry.ended = true;
  entry.kill_at = entry.retry_at = absl::InfiniteFuture();
  const std::string ip = std::exchange(entry.ip, "");  // another pod may have it from now on
  addresses_.Release(ip);
  RemoveFolder(VolumesFolder(entry.folder));  // secrets among them
  const bool shutdown = (stopping_ && !kube::IsBeingDeleted(pod)) || outcome.reason == "Orphaned";
  log::Info("pod ended", {{"pod", entry.key.ToString()},
                          {"exit_code", outcome.exit_code},
                          {"signal", outcome.signal},
                          {"reason", outcome.reason}});
  if (kube::UidOf(pod) == entry.uid && !HasEnded(pod)) {
    entry.status = Share(EndedPatch(pod, outcome, ip, shutdown, clock_.WallNow()));
  } else {
    entry.status.reset();
  }
  Flush(entry);
}

void Node::Terminate(const Json& pod, Entry& entry) {
  if (entry.terminating) return;
  entry.terminating = true;
  entry.process->Terminate();
  entry.kill_at =
      clock_.Now() + absl::Seconds(kube::IntAt(pod, "/metadata/deletionGracePeriodSeconds", 30));
}

void Node::FinishDeletion(const Json& pod, Entry& entry) {
  kube::DeleteOptions options;
  options.uid = kube::UidOf(pod);
  options.grace_period_seconds = 0;
  const auto deleted = client_.Delete(kube::kPod, entry.key, options);
  if (deleted.ok() || absl::IsNotFound(deleted.status()) || absl::IsAborted(deleted.status())) {
    return;
  }
  log::Warning("cannot finish a pod's deletion",
               {{"pod", entry.key.ToString()}, {"error", deleted.status().ToString()}});
  entry.retry_at = clock_.Now() + options_.retry;
}

void Node::Flush(Entry& entry) {
  absl::Status written;
  if (entry.placement != nullptr) {
    written = client_.Patch(kube::kPod, entry.key, *entry.placement).status();
    if (written.ok()) entry.placement.reset();
  }
  if (written.ok() && entry.status != nullptr) {
    written = client_.PatchStatus(kube::kPod, entry.key, *entry.status).status();
    if (written.ok()) entry.status.reset();
  }
  if (written.ok()) return;
  if (absl::IsNotFound(written) || absl::IsAborted(written)) {
    // The pod has left the store, or another has its name: there is nobody to tell.
    entry.placement.reset();
    entry.status.reset();
    return;
  }
  log::Warning("cannot write a pod's status",
               {{"pod", entry.key.ToString()}, {"error", written.ToString()}});
  entry.retry_at = clock_.Now() + options_.retry;
}

void Node::Forget(const std::string& uid) {
  const auto position = entries_.find(uid);
  const Entry& entry = position->second;
  addresses_.Release(entry.ip);
  const JobReference job = entry.job;
  if (KeepsLogs(job)) {
    RemoveFolder(VolumesFolder(entry.folder));
    RemoveFolder(entry.folder + "/state.json");
  } else {
    RemoveFolder(entry.folder);
  }
  entries_.erase(position);
  if (!job.empty()) ReconcileJob({.ns = job.ns, .name = job.name});
}

}  // namespace starling::local
