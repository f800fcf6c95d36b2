// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/trainingjob_reconciler.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/spec/writer.h"
#include "common/json/json.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/messages.h"
#include "controller/kube/objects.h"
#include "controller/resources/credentials.h"
#include "controller/runtime/fan_out.h"
#include "controller/scheduling/scheduling.h"
#include "controller/trainingjob/build.h"
#include "controller/trainingjob/observe.h"
#include "controller/trainingjob/reasons.h"
#include "controller/trainingjob/scheduling_facts.h"

namespace starling::trainingjob {
namespace {

using kube::Json;
using runtime::Key;

// After an answer that a decision must hear of immediately.
constexpr absl::Duration kAtOnce = absl::Milliseconds(1);
constexpr std::size_t kNamesInEvent = 8;
// Readings of specs that are kept, of some kilobytes each: those of jobs that are being brought up
// or to their end, not of all that there are.
constexpr std::size_t kMostSpecs = 256;

// Null: there is none.
template <typename M>
absl::StatusOr<std::shared_ptr<const M>> ReadIfThere(kube::KubeClient& client, const Key& key) {
  absl::StatusOr<std::shared_ptr<const M>> object = kube::Read<M>(client, key);
  if (absl::IsNotFound(object.status())) return nullptr;
  return object;
}

// Whether it writes anything after which there may be more to do.
bool WritesMore(const Decision& decision) {
  const auto is_event = [](const Action& action) {
    return std::holds_alternative<EmitEvent>(action);
  };
  const std::string& state = decision.status.state();
  return (decision.write_status && state != "Succeeded" && state != "Failed") ||
         !std::all_of(decision.actions.begin(), decision.actions.end(), is_event);
}

// Why the API server will not have what it was asked for; empty: it says nothing of the kind.
std::string_view ReasonOf(const absl::Status& status) {
  if (absl::IsAlreadyExists(status)) return kNameTaken;
  // The client tells a quota's refusal as exhausted resources, not as a lack of rights.
  if (absl::StrContains(std::string(status.message()), "exceeded quota")) return kQuotaExceeded;
  return absl::IsPermissionDenied(status) ? kPodForbidden : std::string_view();
}

absl::Status IgnoreGone(const absl::Status& status) {
  // Aborted: the name belongs to another object by now.
  return absl::IsNotFound(status) || absl::IsAborted(status) ? absl::OkStatus() : status;
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
  objects.spec = SpecOf(key);
  const kube::Selection of_job{.labels = resources::JobSelector(key.name), .fields = ""};
  ASSIGN_OR_RETURN(objects.pods, kube::ReadAll<kubernetes::Pod>(client_, key.ns, of_job));
  ASSIGN_OR_RETURN(objects.configs, kube::ReadAll<kubernetes::ConfigMap>(client_, key.ns, of_job));
  ASSIGN_OR_RETURN(objects.secret, ReadIfThere<kubernetes::Secret>(
                                       client_, {key.ns, resources::SecretName(key.name)}));
  ASSIGN_OR_RETURN(objects.service, ReadIfThere<kubernetes::Service>(
                                        client_, {key.ns, resources::ServiceName(key.name)}));
  if (options_.endpoints) {
    ASSIGN_OR_RETURN(objects.slices,
                     kube::ReadAll<kubernetes::EndpointSlice>(client_, key.ns, of_job));
  }
  if (options_.budgets) {
    ASSIGN_OR_RETURN(objects.budget,
                     ReadIfThere<kubernetes::PodDisruptionBudget>(
                         client_, {key.ns, resources::BudgetName(key.name, Role::kWorker)}));
  }
  return objects;
}

std::shared_ptr<const SpecReading> TrainingJobReconciler::SpecOf(const Key& key) {
  sync::MutexLock lock(mutex_);
  const auto found = specs_.find(key);
  return found == specs_.end() ? nullptr : found->second;
}

void TrainingJobReconciler::KeepSpec(const Key& key, std::shared_ptr<const SpecReading> spec) {
  sync::MutexLock lock(mutex_);
  const auto [place, added] = specs_.insert_or_assign(key, std::move(spec));
  if (!added) return;
  by_age_.push_back(key);
  if (by_age_.size() <= kMostSpecs) return;
  specs_.erase(by_age_.front());
  by_age_.pop_front();
}

void TrainingJobReconciler::Remember(const Key& key, Reading& reading) {
  Observed& observed = reading.observed;
  std::vector<ObservedLink> links = links_.Look(key);
  if (!links.empty()) observed.link = std::move(links.front());
  if (links.size() > 1) observed.second_link = std::move(links.back());
  sync::MutexLock lock(mutex_);
  Memory& memory = memory_[key];
  if (memory.uid != observed.job.uid) {
    memory = Memory();
    memory.uid = observed.job.uid;
  }
  observed.shutting_down = halt_;
  observed.since_status_write = clock_.Now() - memory.status_written;
  observed.refusal = memory.refusal;
  observed.slices_refused = memory.slices_refused;
  observed.endpoints_behind_since = memory.endpoints_behind;
  if (memory.unwritten.has_value() && observed.status.conditions().empty()) {
    observed.status = memory.unwritten->status;
    observed.status_unwritten = true;
  }
  for (ObservedPod& pod : observed.pods) {
    const auto since = memory.surplus.find(pod.uid);
    if (since != memory.surplus.end()) pod.surplus_since = since->second;
    const auto unheard = memory.unheard.find(pod.uid);
    if (unheard != memory.unheard.end()) pod.unheard_since = unheard->second;
  }
  if (observed.spec_error.empty() && memory.rejected_generation == observed.generation) {
    observed.spec_error = memory.rejected;
  }
}

absl::Status TrainingJobReconciler::FindServerBudget(const Key& key, Observed& observed) {
  if (!options_.budgets || !resources::HasServers(observed.spec)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto budget,
                   ReadIfThere<kubernetes::PodDisruptionBudget>(
                       client_, {key.ns, resources::BudgetName(key.name, Role::kParameterServer)}));
  observed.has_server_budget =
      budget != nullptr && kube::ControllerUidOf(*budget) == observed.job.uid;
  return absl::OkStatus();
}

absl::StatusOr<runtime::Result> TrainingJobReconciler::Reconcile(const Key& key) {
  absl::StatusOr<Json> job = client_.Get(kube::kTrainingJob, key);
  if (absl::IsNotFound(job.status())) {
    links_.Release(key);
    sync::MutexLock lock(mutex_);
    memory_.erase(key);
    specs_.erase(key);
    return runtime::Result{};
  }
  RETURN_IF_ERROR(job.status());
  ASSIGN_OR_RETURN(const JobObjects objects, List(key, *job));
  Reading reading = Read(objects, platform_);
  KeepSpec(key, reading.spec);
  ReadNodes(reading.observed);
  Remember(key, reading);
  const std::string& manager = reading.observed.spec.run_policy().managed_by();
  const bool ours = manager.empty() || manager == kManager;
  if (scheduling_ == nullptr) {
    reading.scheduling.verdict.warning =
        scheduling::IgnoredOnOneMachine(FactsOf(objects, reading, platform_));
  } else if (ours && !reading.observed.deleting) {
    ASSIGN_OR_RETURN(reading.scheduling, scheduling_->Look(FactsOf(objects, reading, platform_)));
  }
  reading.observed.queueing = QueueingOf(reading.scheduling.verdict);
  RETURN_IF_ERROR(FindServerBudget(key, reading.observed));
  Decision decision = Decide(reading.observed, options_, clock_.WallNow());
  if (!decision.reasons.empty()) {
    log::Info("decided",
              {{"job", key.ToString()}, {"because", absl::StrJoin(decision.reasons, "; ")}});
  }
  if (decision.write_status) RETURN_IF_ERROR(SettleStatus(key, *job, decision));
  NoteDecision(key, decision);
  if (scheduling_ != nullptr) RETURN_IF_ERROR(scheduling_->Settle(reading.scheduling));
  return TakeActions(key, objects, reading, decision);
}

absl::Status TrainingJobReconciler::SettleStatus(const Key& key, Json& job, Decision& decision) {
  if (PutOff(key, decision)) return absl::OkStatus();
  return WriteStatus(key, job, decision);
}

bool TrainingJobReconciler::PutOff(const Key& key, Decision& decision) {
  if (!decision.status_may_wait || !backlog_ || !backlog_()) return false;
  const absl::Time now = clock_.Now();
  sync::MutexLock lock(mutex_);
  std::optional<UnwrittenStatus>& unwritten = memory_[key].unwritten;
  if (!unwritten.has_value()) unwritten = {now, {}};
  const absl::Duration left = unwritten->since + options_.first_status_wait - now;
  if (left <= absl::ZeroDuration()) return false;
  unwritten->status = decision.status;
  decision.requeue_after = std::min(decision.requeue_after, left);
  return true;
}

absl::Status TrainingJobReconciler::WriteStatus(const Key& key, Json& job,
                                                const Decision& decision) {
  // With the version that was read: whoever wrote in between is seen first.
  job["status"] = spec::WriteMessage(decision.status);
  ASSIGN_OR_RETURN(job, client_.UpdateStatus(kube::kTrainingJob, job));
  sync::MutexLock lock(mutex_);
  memory_[key].status_written = clock_.Now();
  memory_[key].unwritten.reset();
  return absl::OkStatus();
}

void TrainingJobReconciler::NoteDecision(const Key& key, const Decision& decision) {
  sync::MutexLock lock(mutex_);
  memory_[key].at_rest = decision.at_rest;
  const auto note = [this](std::map<std::string, absl::Time>& known,
                           const std::vector<std::string>& uids) {
    std::map<std::string, absl::Time> now;
    for (const std::string& uid : uids) {
      const auto since = known.find(uid);
      now[uid] = since == known.end() ? clock_.WallNow() : since->second;
    }
    known = std::move(now);
  };
  std::optional<absl::Time>& behind = memory_[key].endpoints_behind;
  if (!decision.endpoints_behind) {
    behind.reset();
  } else if (!behind.has_value()) {
    behind = clock_.WallNow();
  }
  note(memory_[key].surplus, decision.surplus);
  note(memory_[key].unheard, decision.unheard);
}

void TrainingJobReconciler::ReadNodes(Observed& observed) const {
  if (!find_node_) return;
  for (const ObservedPod& pod : observed.pods) {
    if (pod.node.empty() || observed.nodes.contains(pod.node)) continue;
    const std::shared_ptr<const kubernetes::Node> node = find_node_(pod.node);
    ObservedNode& seen = observed.nodes[pod.node];
    if (node != nullptr) {
      seen = ReadNode(*node);
    } else {
      seen.exists = seen.ready = false;
    }
  }
}

absl::StatusOr<runtime::Result> TrainingJobReconciler::TakeActions(const Key& key,
                                                                   const JobObjects& objects,
                                                                   const Reading& reading,
                                                                   const Decision& decision) {
  absl::Duration requeue = std::min(decision.requeue_after, reading.scheduling.requeue_after);
  absl::Status status;
  for (const Action& action : decision.actions) {
    if (status.ok()) status = Act(objects, reading, action);
  }
  if (status.ok()) status = CreatePods(objects, reading, decision);
  if (WritesMore(decision)) requeue = std::min(requeue, options_.look_again);
  if (status.ok()) {
    // What is only put off is still refused.
    if (!decision.delayed) ForgetRefusal(key);
  } else {
    const absl::StatusOr<absl::Duration> again = TakeRefusal(key, reading, status);
    if (!again.ok()) {
      // The names of pods that run do not wait for what cannot be done now.
      Publish(key, reading.observed.job, decision).IgnoreError();
      return again.status();
    }
    requeue = std::min(requeue, *again);
  }
  std::vector<Supervision> streams;
  for (const auto* stream : {&decision.supervision, &decision.standby_supervision}) {
    if (stream->has_value()) streams.push_back(**stream);
  }
  links_.Supervise(key, streams, reading.observed.job.uid);
  ASSIGN_OR_RETURN(const absl::Duration again, Publish(key, reading.observed.job, decision));
  requeue = std::min(requeue, again);
  runtime::Result result;
  if (requeue != absl::InfiniteDuration()) result.requeue_after = requeue;
  return result;
}

void TrainingJobReconciler::ForgetRefusal(const Key& key) {
  sync::MutexLock lock(mutex_);
  memory_[key].refusal.reset();
}

absl::StatusOr<absl::Duration> TrainingJobReconciler::TakeRefusal(const Key& key,
                                                                  const Reading& reading,
                                                                  const absl::Status& status) {
  const std::string_view reason = ReasonOf(status);
  if (reason.empty() && !absl::IsInvalidArgument(status)) return status;
  sync::MutexLock lock(mutex_);
  Memory& memory = memory_[key];
  if (!reason.empty()) return Note(key, memory.refusal, reason, status);
  log::Warning("refused", {{"job", key.ToString()}, {"why", std::string(status.message())}});
  memory.rejected = std::string(status.message());
  memory.rejected_generation = reading.observed.generation;
  return kAtOnce;
}

absl::Duration TrainingJobReconciler::Note(const Key& key, std::optional<Refusal>& refused,
                                           std::string_view reason,
                                           const absl::Status& status) const {
  const bool again = refused.has_value() && refused->reason == reason;
  const int attempts = again ? refused->attempts + 1 : 1;
  refused = {reason, std::string(status.message()), clock_.WallNow(), attempts};
  log::Warning("refused", {{"job", key.ToString()}, {"why", refused->message}});
  // A refusal that is known by now is not told anew; and not every action asks for patience itself.
  return again ? RetryDelay(attempts) : kAtOnce;
}

absl::Status TrainingJobReconciler::Create(const kube::Message& object) {
  const kube::ResourceKind& kind = kube::KindOf(object);
  absl::Status status = client_.CreateMessage(kind, object).status();
  if (!absl::IsAlreadyExists(status)) return status;
  return AcceptOwn(kind, kube::KeyOf(object), kube::ControllerUidOf(object), std::move(status));
}

absl::Status TrainingJobReconciler::Remove(const kube::Message& object) {
  return Remove(kube::KindOf(object), kube::KeyOf(object), kube::UidOf(object));
}

absl::Status TrainingJobReconciler::Remove(const kube::ResourceKind& kind,
                                           const kube::ObjectKey& key, const std::string& uid) {
  kube::DeleteOptions options;
  options.uid = uid;
  return IgnoreGone(client_.DeleteMessage(kind, key, options).status());
}

absl::Status TrainingJobReconciler::Change(const JobIdentity& job, const SliceChange& slice) {
  const kube::ObjectKey key{job.ns, slice.name};
  if (slice.endpoints.empty()) return Remove(kube::kEndpointSlice, key, slice.uid);
  if (slice.uid.empty()) return Create(resources::BuildSlice(job, slice.name, slice.endpoints));
  const Json patch = resources::SlicePatch(slice.uid, job.ns, slice.endpoints);
  return IgnoreGone(client_.Patch(kube::kEndpointSlice, key, patch).status());
}

absl::StatusOr<absl::Duration> TrainingJobReconciler::Publish(const Key& key,
                                                              const JobIdentity& job,
                                                              const Decision& decision) {
  absl::Status status;
  for (const SliceChange& slice : decision.slices) {
    // What is refused of one keeps none of the others from being changed.
    const absl::Status changed = Change(job, slice);
    if (status.ok()) status = changed;
  }
  sync::MutexLock lock(mutex_);
  std::optional<Refusal>& refused = memory_[key].slices_refused;
  if (status.ok()) {
    // What is only put off is still refused. That it is over is told by another pass.
    if (decision.endpoints_behind || !refused.has_value()) return absl::InfiniteDuration();
    refused.reset();
    return kAtOnce;
  }
  const std::string_view reason = ReasonOf(status);
  if (reason.empty() && !absl::IsInvalidArgument(status)) return status;
  return Note(key, refused, reason == kNameTaken ? reason : kNamesUnpublished, status);
}

absl::Status TrainingJobReconciler::CreatePodFrom(const Json& pod) {
  absl::Status status = client_.CreateFromJson(kube::kPod, pod).status();
  if (!absl::IsAlreadyExists(status)) return status;
  return AcceptOwn(kube::kPod, kube::KeyOf(pod), kube::ControllerUidOf(pod), std::move(status));
}

void TrainingJobReconciler::Store(const JobObjects& objects, const JobIdentity& job,
                                  const StoreTrace& trace) {
  absl::Status stored;
  if (const auto* before = StoredTrace(objects, job); before != nullptr) {
    stored = Remove(*before);
  }
  if (stored.ok()) stored = Create(resources::BuildTrace(job, trace.request, trace.packed));
  if (stored.ok()) return;
  log::Warning("a timeline cannot be stored, and is tried again",
               {{"job", job.name}, {"why", std::string(stored.message())}});
}

absl::Status TrainingJobReconciler::AcceptOwn(const kube::ResourceKind& kind,
                                              const kube::ObjectKey& key, const std::string& owner,
                                              absl::Status taken) {
  const absl::StatusOr<kube::MessagePtr> there = client_.GetMessage(kind, key);
  const bool own =
      there.ok() && !kube::IsBeingDeleted(**there) && kube::ControllerUidOf(**there) == owner;
  return own ? absl::OkStatus() : std::move(taken);
}

absl::Status TrainingJobReconciler::CreatePods(const JobObjects& objects, const Reading& reading,
                                               const Decision& decision) {
  std::vector<Json> pods;
  std::map<std::int64_t, v1alpha1::TrainingJobSpec> specs;  // by generation
  PodBuilder builder(reading.observed.job, platform_);
  for (const Action& action : decision.actions) {
    const auto* create = std::get_if<CreatePod>(&action);
    if (create == nullptr) continue;
    const std::int64_t generation = create->config_generation;
    const auto [frozen, added] = specs.try_emplace(generation);
    if (added) frozen->second = FrozenSpec(objects, reading.observed, generation);
    // Where nothing is frozen yet, it is the observed one.
    if (added && objects.configs.empty() && reading.pods.has_value()) {
      builder.Use(generation, *reading.pods);
    }
    ASSIGN_OR_RETURN(Json pod, builder.Build(frozen->second, *create));
    pods.push_back(scheduling::Decorate(reading.scheduling, create->role, std::move(pod)));
  }
  const std::vector<absl::Status> results = runtime::FanOut(
      pods.size(), options_.create_width, [&](std::size_t i) { return CreatePodFrom(pods[i]); });
  absl::Status first;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].ok()) names.push_back(kube::NameOf(pods[i]));
    if (first.ok()) first = results[i];
  }
  if (names.empty()) return first;
  const std::size_t more = names.size() - std::min(names.size(), kNamesInEvent);
  names.resize(names.size() - more);
  std::string note = absl::StrCat("created ", absl::StrJoin(names, ", "));
  if (more > 0) absl::StrAppend(&note, " and ", more, " more");
  events_.Record(*objects.job, runtime::EventType::kNormal, "PodsCreated", "CreatePods", note);
  return first;
}

absl::Status TrainingJobReconciler::CreateCredentials(const JobObjects& objects,
                                                      const Observed& observed) {
  const JobIdentity& job = observed.job;
  ASSIGN_OR_RETURN(const resources::JobCredentials credentials,
                   resources::MakeJobCredentials(platform_.seed, job.uid, clock_.WallNow(),
                                                 ServersOf(observed.spec)));
  if (objects.secret != nullptr && kube::ControllerUidOf(*objects.secret) == job.uid) {
    // It was made from another seed: nobody would accept what is in it.
    RETURN_IF_ERROR(Remove(*objects.secret));
  }
  return Create(resources::BuildSecret(job, credentials));
}

absl::Status TrainingJobReconciler::Act(const JobObjects& objects, const Reading& reading,
                                        const Action& action) {
  const Observed& observed = reading.observed;
  const JobIdentity& job = observed.job;
  if (std::holds_alternative<CreateSecret>(action)) {
    return CreateCredentials(objects, observed);
  }
  if (std::holds_alternative<CreateService>(action)) {
    return Create(resources::BuildService(job));
  }
  if (const auto* budget = std::get_if<CreateBudget>(&action)) {
    return Create(resources::BuildBudget(job, budget->role));
  }
  if (const auto* config = std::get_if<CreateConfig>(&action)) {
    return Create(resources::BuildConfig(job, config->generation, reading.spec->given_json,
                                         json::Dump(spec::WriteMessage(observed.spec))));
  }
  if (const auto* remove = std::get_if<DeletePod>(&action)) {
    kube::DeleteOptions options;
    options.uid = remove->uid;
    options.grace_period_seconds = remove->grace_seconds;
    return IgnoreGone(client_.DeleteMessage(kube::kPod, {job.ns, remove->name}, options).status());
  }
  if (std::holds_alternative<DeleteJob>(action)) {
    kube::DeleteOptions options;
    options.uid = job.uid;
    return IgnoreGone(client_.Delete(kube::kTrainingJob, {job.ns, job.name}, options).status());
  }
  if (const auto* trace = std::get_if<StoreTrace>(&action)) Store(objects, job, *trace);
  if (const auto* event = std::get_if<EmitEvent>(&action)) {
    events_.Record(*objects.job,
                   event->warning ? runtime::EventType::kWarning : runtime::EventType::kNormal,
                   event->reason, event->action, event->note);
  }
  return absl::OkStatus();
}

}  // namespace starling::trainingjob
