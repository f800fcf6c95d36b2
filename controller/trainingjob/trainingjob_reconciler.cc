// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/trainingjob_reconciler.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/spec/writer.h"
#include "common/bytes/bytes.h"
#include "common/json/json.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/trainingjob/observe.h"

namespace starling::trainingjob {
namespace {

using kube::Json;
using runtime::Key;

// A name is taken by an object of an earlier job that is on its way out.
constexpr absl::Duration kNameTaken = absl::Milliseconds(200);

absl::StatusOr<std::optional<Json>> GetIfThere(kube::KubeClient& client,
                                               const kube::ResourceKind& kind, const Key& key) {
  absl::StatusOr<Json> object = client.Get(kind, key);
  if (absl::IsNotFound(object.status())) return std::optional<Json>();
  RETURN_IF_ERROR(object.status());
  return std::optional<Json>(*std::move(object));
}

absl::Status IgnoreGone(const absl::Status& status) {
  // Aborted: the name belongs to another object by now.
  return absl::IsNotFound(status) || absl::IsAborted(status) ? absl::OkStatus() : status;
}

std::string NewKey() {
  const std::string random = bytes::RandomBytes(32);
  return bytes::ToHex(
      std::span(reinterpret_cast<const std::uint8_t*>(random.data()), random.size()));
}

}  // namespace

TrainingJobReconciler::TrainingJobReconciler(kube::KubeClient& client,
                                             runtime::EventRecorder& events,
                                             CoordinatorLinks& links, const clock::Clock& clock,
                                             resources::Platform platform, Options options)
    : client_(client),
      events_(events),
      links_(links),
      clock_(clock),
      platform_(std::move(platform)),
      options_(options) {}

void TrainingJobReconciler::Halt() {
  sync::MutexLock lock(mutex_);
  halt_ = true;
  for (auto& [key, memory] : memory_) memory.at_rest = false;
}

bool TrainingJobReconciler::Halted() {
  sync::MutexLock lock(mutex_);
  return std::all_of(memory_.begin(), memory_.end(),
                     [](const auto& item) { return item.second.at_rest; });
}

absl::StatusOr<JobObjects> TrainingJobReconciler::List(const Key& key, Json& job) {
  JobObjects objects;
  objects.job = &job;
  kube::ListOptions options;
  options.selection.labels = resources::JobSelector(key.name);
  ASSIGN_OR_RETURN(kube::ObjectList pods, client_.List(kube::kPod, key.ns, options));
  ASSIGN_OR_RETURN(kube::ObjectList configs, client_.List(kube::kConfigMap, key.ns, options));
  objects.pods = std::move(pods.items);
  objects.configs = std::move(configs.items);
  ASSIGN_OR_RETURN(objects.secret,
                   GetIfThere(client_, kube::kSecret, {key.ns, resources::SecretName(key.name)}));
  ASSIGN_OR_RETURN(objects.service,
                   GetIfThere(client_, kube::kService, {key.ns, resources::ServiceName(key.name)}));
  return objects;
}

void TrainingJobReconciler::Remember(const Key& key, Reading& reading) {
  Observed& observed = reading.observed;
  observed.link = links_.Look(key);
  sync::MutexLock lock(mutex_);
  const Memory& memory = memory_[key];
  observed.shutting_down = halt_;
  observed.since_status_write = clock_.Now() - memory.status_written;
  for (ObservedPod& pod : observed.pods) {
    const auto since = memory.surplus.find(pod.uid);
    if (since != memory.surplus.end()) pod.surplus_since = since->second;
  }
  if (observed.spec_error.empty() && memory.rejected_generation == observed.generation) {
    observed.spec_error = memory.rejected;
  }
}

absl::StatusOr<runtime::Result> TrainingJobReconciler::Reconcile(const Key& key) {
  absl::StatusOr<Json> job = client_.Get(kube::kTrainingJob, key);
  if (absl::IsNotFound(job.status())) {
    links_.Release(key);
    sync::MutexLock lock(mutex_);
    memory_.erase(key);
    return runtime::Result{};
  }
  RETURN_IF_ERROR(job.status());
  ASSIGN_OR_RETURN(const JobObjects objects, List(key, *job));
  Reading reading = Read(objects, platform_);
  Remember(key, reading);
  const Decision decision = Decide(reading.observed, options_, clock_.WallNow());
  if (!decision.reasons.empty()) {
    log::Info("decided",
              {{"job", key.ToString()}, {"because", absl::StrJoin(decision.reasons, "; ")}});
  }
  if (decision.write_status) RETURN_IF_ERROR(WriteStatus(key, *job, decision));
  NoteDecision(key, decision);
  return TakeActions(key, objects, reading, decision);
}

absl::Status TrainingJobReconciler::WriteStatus(const Key& key, Json& job,
                                                const Decision& decision) {
  // With the version that was read: whoever wrote in between is seen first.
  job["status"] = spec::WriteMessage(decision.status);
  ASSIGN_OR_RETURN(job, client_.UpdateStatus(kube::kTrainingJob, job));
  sync::MutexLock lock(mutex_);
  memory_[key].status_written = clock_.Now();
  return absl::OkStatus();
}

void TrainingJobReconciler::NoteDecision(const Key& key, const Decision& decision) {
  sync::MutexLock lock(mutex_);
  memory_[key].at_rest = decision.at_rest;
  std::map<std::string, absl::Time>& known = memory_[key].surplus;
  std::map<std::string, absl::Time> now;
  for (const std::string& uid : decision.surplus) {
    const auto since = known.find(uid);
    now[uid] = since == known.end() ? clock_.WallNow() : since->second;
  }
  known = std::move(now);
}

absl::StatusOr<runtime::Result> TrainingJobReconciler::TakeActions(const Key& key,
                                                                   const JobObjects& objects,
                                                                   const Reading& reading,
                                                                   const Decision& decision) {
  absl::Duration requeue = decision.requeue_after;
  for (const Action& action : decision.actions) {
    const absl::Status status = Act(objects, reading, action);
    if (absl::IsAlreadyExists(status)) {
      requeue = std::min(requeue, kNameTaken);
    } else if (absl::IsInvalidArgument(status)) {
      log::Warning("refused", {{"job", key.ToString()}, {"why", std::string(status.message())}});
      sync::MutexLock lock(mutex_);
      memory_[key].rejected = std::string(status.message());
      memory_[key].rejected_generation = reading.observed.generation;
      requeue = absl::Milliseconds(1);
    } else {
      RETURN_IF_ERROR(status);
    }
  }
  if (decision.supervision.has_value() && !reading.secret.empty()) {
    links_.Supervise(key, *decision.supervision, reading.secret);
  } else {
    links_.Release(key);
  }
  runtime::Result result;
  if (requeue != absl::InfiniteDuration()) result.requeue_after = requeue;
  return result;
}

absl::Status TrainingJobReconciler::Create(const kube::ResourceKind& kind, const Json& object) {
  return client_.Create(kind, object).status();
}

absl::Status TrainingJobReconciler::Act(const JobObjects& objects, const Reading& reading,
                                        const Action& action) {
  const Observed& observed = reading.observed;
  const JobIdentity& job = observed.job;
  if (std::holds_alternative<CreateSecret>(action)) {
    return Create(kube::kSecret, resources::BuildSecret(job, NewKey()));
  }
  if (std::holds_alternative<CreateService>(action)) {
    return Create(kube::kService, resources::BuildService(job));
  }
  if (const auto* config = std::get_if<CreateConfig>(&action)) {
    return Create(kube::kConfigMap,
                  resources::BuildConfig(job, config->generation,
                                         json::Dump(spec::WriteMessage(reading.given)),
                                         json::Dump(spec::WriteMessage(observed.spec))));
  }
  if (const auto* create = std::get_if<CreatePod>(&action)) {
    const v1alpha1::TrainingJobSpec frozen =
        FrozenSpec(objects, observed, create->config_generation);
    ASSIGN_OR_RETURN(const Json pod, resources::BuildPod(job, frozen, create->role, create->index,
                                                         create->config_generation, platform_));
    RETURN_IF_ERROR(Create(kube::kPod, pod));
    events_.Record(*objects.job, runtime::EventType::kNormal, "PodCreated", "CreatePod",
                   absl::StrCat("created ", kube::NameOf(pod)));
    return absl::OkStatus();
  }
  if (const auto* remove = std::get_if<DeletePod>(&action)) {
    kube::DeleteOptions options;
    options.uid = remove->uid;
    options.grace_period_seconds = remove->grace_seconds;
    return IgnoreGone(client_.Delete(kube::kPod, {job.ns, remove->name}, options).status());
  }
  if (std::holds_alternative<DeleteJob>(action)) {
    kube::DeleteOptions options;
    options.uid = job.uid;
    return IgnoreGone(client_.Delete(kube::kTrainingJob, {job.ns, job.name}, options).status());
  }
  if (const auto* event = std::get_if<EmitEvent>(&action)) {
    events_.Record(*objects.job,
                   event->warning ? runtime::EventType::kWarning : runtime::EventType::kNormal,
                   event->reason, event->action, event->note);
  }
  return absl::OkStatus();
}

}  // namespace starling::trainingjob
