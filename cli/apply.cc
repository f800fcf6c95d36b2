// SPDX-License-Identifier: Apache-2.0
#include "cli/apply.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/history.h"
#include "common/status/macros.h"
#include "controller/kube/garbage_collector.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"

namespace starling::cli {
namespace {

using kube::Json;

constexpr absl::Duration kGoneTimeout = absl::Seconds(60);

absl::StatusOr<std::optional<Json>> Find(kube::KubeClient& store, const kube::ObjectKey& key) {
  auto found = store.Get(kube::kTrainingJob, key);
  if (absl::IsNotFound(found.status())) return std::optional<Json>();
  RETURN_IF_ERROR(found.status());
  return std::optional<Json>(*std::move(found));
}

// Whether any pod of that very job is left.
absl::StatusOr<bool> HasPods(kube::KubeClient& store, const Json& job) {
  ASSIGN_OR_RETURN(const kube::ObjectList pods,
                   store.List(kube::kPod, kube::NamespaceOf(job),
                              {{resources::JobSelector(kube::NameOf(job)), ""}, 0, ""}));
  for (const Json& pod : pods.items) {
    if (kube::ControllerUidOf(pod) == kube::UidOf(job)) return true;
  }
  return false;
}

absl::Status Remove(Session& session, kube::KubeClient& store, const Json& job,
                    const std::function<absl::Status()>& tend) {
  const auto deleted =
      store.Delete(kube::kTrainingJob, kube::KeyOf(job),
                   {.uid = kube::UidOf(job), .resource_version = {}, .grace_period_seconds = {}});
  if (!deleted.ok() && !absl::IsNotFound(deleted.status())) return deleted.status();
  // What has ended is deleted here; an idle controller would take longer.
  RETURN_IF_ERROR(kube::CollectGarbage(store, kube::KnownKinds()).status());
  if (!IsFinished(job)) {
    session.terminal().Say(
        absl::StrCat("stopping the job \"", kube::NameOf(job), "\" that is there"));
  }
  return AwaitGone(session, job, kGoneTimeout, tend);
}

Json ResumePatch(const Json& existing) {
  return {{"metadata", {{"uid", kube::UidOf(existing)}}},
          {"spec", {{"runPolicy", {{"suspend", false}}}}}};
}

absl::Status Refusal(const Json& job) {
  return absl::InvalidArgumentError(absl::StrCat(
      "job \"", kube::NameOf(job),
      "\" is not finished and was started from a different spec; go on with it by running the file "
      "it came from, or stop it and start anew with --replace"));
}

// Compares what users write; resourceVersion also changes when a controller writes the status.
bool AsksTheSame(const Json& before, const Json& after) {
  for (const char* part : {"/spec", "/metadata/labels", "/metadata/annotations"}) {
    if (kube::At(before, part) != kube::At(after, part)) return false;
  }
  return true;
}

}  // namespace

bool IsFinished(const Json& job) {
  return kube::IsConditionTrue(job, "Succeeded") || kube::IsConditionTrue(job, "Failed");
}

ApplyStep DecideApply(const Json* existing, const Json& wanted, bool replace) {
  if (existing == nullptr) return ApplyStep::kCreate;
  if (kube::IsBeingDeleted(*existing)) return ApplyStep::kAwaitGone;
  if (IsFinished(*existing)) return ApplyStep::kStartAnew;
  const Json applied = Json::parse(kube::AnnotationOf(*existing, kLastAppliedSpec), nullptr, false);
  if (!applied.is_discarded() && SameMeaning(applied, kube::At(wanted, "/spec"))) {
    return ApplyStep::kGoOn;
  }
  return replace ? ApplyStep::kReplace : ApplyStep::kRefuse;
}

absl::Status AwaitGone(Session& session, const Json& job, absl::Duration timeout,
                       const std::function<absl::Status()>& tend) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  const absl::Time deadline = session.clock().Now() + timeout;
  while (true) {
    ASSIGN_OR_RETURN(const auto found, Find(*store, kube::KeyOf(job)));
    ASSIGN_OR_RETURN(const bool pods, HasPods(*store, job));
    if ((!found || kube::UidOf(*found) != kube::UidOf(job)) && !pods) return absl::OkStatus();
    if (session.interrupts().count() > 0) return absl::CancelledError("interrupted");
    if (session.clock().Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "job \"", kube::NameOf(job), "\" is not gone after ", absl::FormatDuration(timeout),
          "; see: starling describe ", kube::NameOf(job)));
    }
    RETURN_IF_ERROR(tend());
    session.interrupts().Wait(session.poll());
  }
}

absl::StatusOr<Json> ApplyToCluster(Session& session, const LoadedJob& wanted, bool replace,
                                    std::string& what) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  const kube::ObjectKey key = kube::KeyOf(wanted.object);
  ASSIGN_OR_RETURN(std::optional<Json> existing, Find(*store, key));
  if (existing && replace) {
    const auto deleted = store->Delete(
        kube::kTrainingJob, key,
        {.uid = kube::UidOf(*existing), .resource_version = {}, .grace_period_seconds = {}});
    if (!deleted.ok() && !absl::IsNotFound(deleted.status())) return deleted.status();
    RETURN_IF_ERROR(AwaitGone(session, *existing, kGoneTimeout, [] { return absl::OkStatus(); }));
    existing.reset();
  }
  ASSIGN_OR_RETURN(
      Json applied,
      store->Apply(kube::kTrainingJob, wanted.object,
                   {.field_manager = "starling-cli", .force = true, .dry_run = false}));
  what = !existing ? "created" : AsksTheSame(*existing, applied) ? "unchanged" : "configured";
  return applied;
}

absl::StatusOr<Applied> Apply(Session& session, const LoadedJob& wanted, bool replace,
                              const std::function<absl::Status()>& tend) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  const kube::ObjectKey key = kube::KeyOf(wanted.object);
  ApplyStep done = ApplyStep::kCreate;
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<Json> existing, Find(*store, key));
    const ApplyStep step = DecideApply(existing ? &*existing : nullptr, wanted.object, replace);
    switch (step) {
      case ApplyStep::kCreate: {
        auto created = store->Create(kube::kTrainingJob, wanted.object);
        if (absl::IsAlreadyExists(created.status())) continue;  // somebody was quicker
        RETURN_IF_ERROR(created.status());
        return Applied{*std::move(created), done};
      }
      case ApplyStep::kGoOn: {
        const bool paused = kube::BoolAt(*existing, "/spec/runPolicy/suspend") &&
                            !kube::BoolAt(wanted.object, "/spec/runPolicy/suspend");
        if (!paused) return Applied{*existing, step};
        auto resumed = store->Patch(kube::kTrainingJob, key, ResumePatch(*existing));
        if (absl::IsNotFound(resumed.status()) || absl::IsAborted(resumed.status())) continue;
        RETURN_IF_ERROR(resumed.status());
        return Applied{*std::move(resumed), step};
      }
      case ApplyStep::kStartAnew:
      case ApplyStep::kReplace:
        RETURN_IF_ERROR(Archive(session.home(), *existing));
        RETURN_IF_ERROR(Remove(session, *store, *existing, tend));
        done = step;
        continue;
      case ApplyStep::kAwaitGone:
        RETURN_IF_ERROR(AwaitGone(session, *existing, kGoneTimeout, tend));
        continue;
      case ApplyStep::kRefuse:
        return Refusal(*existing);
    }
  }
}

}  // namespace starling::cli
