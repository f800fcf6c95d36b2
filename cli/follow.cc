// SPDX-License-Identifier: Apache-2.0
#include "cli/follow.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/apply.h"
#include "cli/pages.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"

namespace starling::cli {
namespace {

using kube::Json;

constexpr absl::Duration kTick = absl::Milliseconds(50);
// A job's end may be reported before its pods have ended; the controller deletes them in any case.
constexpr absl::Duration kPodsTimeout = absl::Seconds(2);

bool IsSuspended(const Json& job) { return kube::IsConditionTrue(job, "Suspended"); }

}  // namespace

absl::Status Follower::Open() {
  ASSIGN_OR_RETURN(store_, session_.Store());
  if (!only_watch_) {
    RETURN_IF_ERROR(session_.home().CreateFolderOf(job_));
    const std::string fifo = session_.home().FolderOf(job_) + "/alive";
    if (const int error = process::AliveHold::Open(fifo, alive_); error != 0) {
      return absl::ErrnoToStatus(error, absl::StrCat("cannot hold ", fifo, "; remove it"));
    }
  }
  return Relist();
}

absl::Status Follower::Relist() {
  const kube::ObjectKey key = kube::KeyOf(job_);
  const kube::Selection selection{"", absl::StrCat("metadata.name=", key.name)};
  ASSIGN_OR_RETURN(kube::ObjectList list,
                   store_->List(kube::kTrainingJob, key.ns, {selection, 0, ""}));
  if (list.items.empty() || kube::UidOf(list.items[0]) != kube::UidOf(job_)) {
    // A list may come from a copy that has not heard of a new job yet.
    absl::StatusOr<Json> job = store_->Get(kube::kTrainingJob, key);
    if (absl::IsNotFound(job.status()) || (job.ok() && kube::UidOf(*job) != kube::UidOf(job_))) {
      deleted_ = true;
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(job.status());
    list.items = {*std::move(job)};
  }
  See(list.items[0]);
  ASSIGN_OR_RETURN(watch_,
                   store_->Watch(kube::kTrainingJob, key.ns, {selection, list.resource_version}));
  return absl::OkStatus();
}

void Follower::See(const Json& job) {
  job_ = job;
  Show();
}

void Follower::Show() {
  Terminal& terminal = session_.terminal();
  const v1alpha1::TrainingJob job = ToMessage(job_);
  const absl::Time now = session_.clock().Now();
  std::vector<Line> lines = story_.Tell(job.status(), now);
  if (!terminal.live()) {
    for (Line& line : story_.TellProgress(job.status(), now)) lines.push_back(std::move(line));
  }
  for (const Line& line : lines) {
    terminal.Say(absl::StrCat(terminal.PaintError(Style::kDim, job.metadata().name() + ":"), " ",
                              terminal.PaintError(line.style, line.text)));
  }
  if (!IsFinished(job_)) terminal.Live(ProgressLine(job));
}

absl::Status Follower::Take(absl::Duration timeout) {
  const auto event = watch_->Next(timeout);
  if (absl::IsOutOfRange(event.status())) return Relist();
  if (absl::IsUnavailable(event.status()) && session_.remote()) {
    session_.terminal().Say(absl::StrCat(std::string(event.status().message()), "; still trying"));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(event.status());
  if (!*event || (*event)->type == kube::WatchEventType::kBookmark) return absl::OkStatus();
  if (kube::UidOf(*(*event)->object) != kube::UidOf(job_)) return absl::OkStatus();
  if ((*event)->type == kube::WatchEventType::kDeleted) {
    job_ = *(*event)->object;
    deleted_ = true;
    return absl::OkStatus();
  }
  See(*(*event)->object);
  return absl::OkStatus();
}

std::optional<FollowEnd> Follower::End() const {
  if (IsFinished(job_)) return interrupts_ > 0 ? FollowEnd::kLeft : FollowEnd::kFinished;
  if (deleted_) return FollowEnd::kDeleted;
  if (IsSuspended(job_) && kube::BoolAt(job_, "/spec/runPolicy/suspend")) {
    if (interrupts_ > 0) return FollowEnd::kLeft;
    return FollowEnd::kSuspended;
  }
  // The first Ctrl-C asks for a suspension, the second leaves; the controller completes the
  // suspension.
  if (interrupts_ > (only_watch_ ? 0 : 1)) return FollowEnd::kLeft;
  return std::nullopt;
}

absl::Status Follower::AskToSuspend() {
  session_.terminal().Say(
      "saving a checkpoint before leaving; the same command goes on from there (Ctrl-C again "
      "leaves "
      "at once)");
  const Json patch = {{"metadata", {{"uid", kube::UidOf(job_)}}},
                      {"spec", {{"runPolicy", {{"suspend", true}}}}}};
  const auto patched = store_->Patch(kube::kTrainingJob, kube::KeyOf(job_), patch);
  if (absl::IsNotFound(patched.status()) || absl::IsAborted(patched.status())) {
    return absl::OkStatus();  // it has gone; the watch says so
  }
  return patched.status();
}

absl::StatusOr<bool> Follower::PodsHaveEnded() {
  const kube::ObjectKey key = kube::KeyOf(job_);
  ASSIGN_OR_RETURN(
      const kube::ObjectList pods,
      store_->List(kube::kPod, key.ns, {{resources::JobSelector(key.name), ""}, 0, ""}));
  for (const Json& pod : pods.items) {
    const std::string phase = kube::StringAt(pod, "/status/phase");
    const bool ours = kube::ControllerUidOf(pod) == kube::UidOf(job_);
    if (ours && phase != "Succeeded" && phase != "Failed") return false;
  }
  return true;
}

// After the job's end: what is still running ends too, unless the job wants it kept.
absl::Status Follower::SettleDown() {
  session_.terminal().ClearLive();
  if (kube::StringAt(job_, "/spec/runPolicy/cleanPodPolicy") == "None") return absl::OkStatus();
  const absl::Time deadline = session_.clock().Now() + kPodsTimeout;
  while (!deleted_ && session_.clock().Now() < deadline) {
    ASSIGN_OR_RETURN(const bool ended, PodsHaveEnded());
    if (ended || session_.interrupts().count() > interrupts_) break;
    if (!only_watch_) RETURN_IF_ERROR(keeper_.Tend());
    RETURN_IF_ERROR(Take(kTick));
  }
  return absl::OkStatus();
}

absl::StatusOr<Followed> Follower::Follow(Json job) {
  job_ = std::move(job);
  story_.Begin(ToMessage(job_).status());
  RETURN_IF_ERROR(Open());
  while (true) {
    if (const std::optional<FollowEnd> end = End()) {
      if (*end == FollowEnd::kFinished) RETURN_IF_ERROR(SettleDown());
      session_.terminal().ClearLive();
      return Followed{*end, job_};
    }
    if (!only_watch_) RETURN_IF_ERROR(keeper_.Tend());
    if (keeper_.TakeRestarted()) {
      session_.terminal().Say("the controller had ended and has been started again");
    }
    RETURN_IF_ERROR(Take(kTick));
    const int count = session_.interrupts().count();
    if (count > 0 && interrupts_ == 0 && !only_watch_) RETURN_IF_ERROR(AskToSuspend());
    interrupts_ = count;
  }
}

}  // namespace starling::cli
