// SPDX-License-Identifier: Apache-2.0
// scale, suspend, resume and delete: the edits of a job that is there.
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "api/spec/field_error.h"
#include "cli/apply.h"
#include "cli/commands.h"
#include "cli/control_plane.h"
#include "cli/exit_code.h"
#include "cli/pages.h"
#include "common/status/macros.h"
#include "controller/kube/garbage_collector.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

using kube::Json;

constexpr absl::Duration kDefaultTimeout = absl::Seconds(60);

void SayDone(Session& session, const kube::ObjectKey& key, std::string_view what) {
  session.terminal().Print(
      absl::StrCat("trainingjob.starling.dev/", key.name, " ", std::string(what), "\n"));
}

absl::Status NobodyIsThere(const Session& session) {
  if (session.remote() || ControllerRuns(session.home())) return absl::OkStatus();
  return absl::UnavailableError(
      "noted, but no control plane is up to do it: start it with `starling up`");
}

absl::Status NothingTo(std::string_view verb, const kube::ObjectKey& key) {
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", key.name, "\" is finished; there is nothing to ", std::string(verb)));
}

// The scale subresource speaks of workers.
absl::Status ScaleServers(kube::KubeClient& store, const Json& job, std::int64_t replicas) {
  const kube::ObjectKey key{kube::NamespaceOf(job), kube::NameOf(job)};
  if (!ToMessage(job).spec().exchange().has_parameter_server()) {
    return absl::InvalidArgumentError(
        absl::StrCat("job \"", key.name,
                     "\" has no parameter servers: its spec.exchange is not parameterServer"));
  }
  const Json patch = {
      {"metadata", {{"uid", kube::UidOf(job)}}},
      {"spec", {{"replicaSpecs", {{"parameterServer", {{"replicas", replicas}}}}}}}};
  return store.Patch(kube::kTrainingJob, key, patch).status();
}

absl::Status Scale(Session& session, const Arguments& arguments) {
  std::int64_t replicas = 0;
  const std::string text = arguments.Get("replicas");
  if (!absl::SimpleAtoi(text, &replicas) || replicas < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--replicas ", text.empty() ? "is missing" : text, ": write a whole number, 0 or more"));
  }
  const std::string role = arguments.Get("role");
  constexpr std::string_view kServers = "parameter-server";
  if (!role.empty() && role != "worker" && role != kServers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--role ", role, ": workers and parameter servers can be scaled; write worker or ",
        std::string(kServers), spec::DidYouMean(role, {"worker", std::string(kServers)})));
  }
  const kube::ObjectKey key = JobKey(arguments, arguments.names[0]);
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  ASSIGN_OR_RETURN(const Json job, store->Get(kube::kTrainingJob, key));
  if (IsFinished(job)) return NothingTo("scale", key);
  if (role == kServers) {
    RETURN_IF_ERROR(ScaleServers(*store, job, replicas));
    SayDone(session, key, "scaled");
    return absl::OkStatus();
  }
  const Json scale = {{"metadata", {{"name", key.name}, {"namespace", key.ns}}},
                      {"spec", {{"replicas", replicas}}}};
  RETURN_IF_ERROR(store->UpdateScale(kube::kTrainingJob, scale).status());
  SayDone(session, key, "scaled");
  return absl::OkStatus();
}

absl::StatusOr<Json> SetSuspend(Session& session, const kube::ObjectKey& key, bool suspend) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  ASSIGN_OR_RETURN(const Json job, store->Get(kube::kTrainingJob, key));
  if (IsFinished(job)) {
    return NothingTo(suspend ? "suspend" : "resume", key);
  }
  const Json patch = {{"metadata", {{"uid", kube::UidOf(job)}}},
                      {"spec", {{"runPolicy", {{"suspend", suspend}}}}}};
  return store->Patch(kube::kTrainingJob, key, patch);
}

absl::Status AwaitSuspended(Session& session, const kube::ObjectKey& key, absl::Duration timeout) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  const absl::Time deadline = session.clock().Now() + timeout;
  while (true) {
    ASSIGN_OR_RETURN(const Json job, store->Get(kube::kTrainingJob, key));
    if (kube::IsConditionTrue(job, "Suspended") || IsFinished(job)) return absl::OkStatus();
    if (session.interrupts().count() > 0) return absl::CancelledError("interrupted");
    if (session.clock().Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "job \"", key.name, "\" is not suspended after ", absl::FormatDuration(timeout)));
    }
    session.interrupts().Wait(session.poll());
  }
}

absl::Status Suspend(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const absl::Duration timeout,
                   DurationFlag(arguments, "timeout", kDefaultTimeout));
  const kube::ObjectKey key = JobKey(arguments, arguments.names[0]);
  RETURN_IF_ERROR(SetSuspend(session, key, true).status());
  if (arguments.Has("wait")) {
    RETURN_IF_ERROR(NobodyIsThere(session));
    RETURN_IF_ERROR(AwaitSuspended(session, key, timeout));
  }
  SayDone(session, key, "suspended");
  return absl::OkStatus();
}

absl::Status Resume(Session& session, const Arguments& arguments) {
  const kube::ObjectKey key = JobKey(arguments, arguments.names[0]);
  RETURN_IF_ERROR(SetSuspend(session, key, false).status());
  SayDone(session, key, "resumed");
  if (!session.remote() && !ControllerRuns(session.home())) {
    session.terminal().Say("no control plane is up: start it with `starling up`");
  }
  return absl::OkStatus();
}

absl::Status Delete(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const absl::Duration timeout,
                   DurationFlag(arguments, "timeout", kDefaultTimeout));
  if (arguments.names.size() == 2 && arguments.names[0] != "job" && arguments.names[0] != "jobs" &&
      arguments.names[0] != "tj" && arguments.names[0] != "trainingjob") {
    return absl::InvalidArgumentError("only jobs can be deleted: starling delete [job] NAME");
  }
  const kube::ObjectKey key = JobKey(arguments, arguments.names.back());
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  ASSIGN_OR_RETURN(const Json job, store->Delete(kube::kTrainingJob, key, {}));
  if (!session.remote()) {
    RETURN_IF_ERROR(kube::CollectGarbage(*store, kube::KnownKinds()).status());
  }
  if (!arguments.Has("no-wait")) {
    // Pods without a controller end by themselves, but nobody is there to take them off the list.
    ControllerKeeper keeper(session);
    RETURN_IF_ERROR(AwaitGone(session, job, timeout, [&keeper] { return keeper.Tend(); }));
  }
  SayDone(session, key, "deleted");
  return absl::OkStatus();
}

}  // namespace

int ScaleCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Scale(session, arguments));
}

int SuspendCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Suspend(session, arguments));
}

int ResumeCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Resume(session, arguments));
}

int DeleteCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Delete(session, arguments));
}

}  // namespace starling::cli
