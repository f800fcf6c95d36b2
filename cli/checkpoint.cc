// SPDX-License-Identifier: Apache-2.0
// checkpoint: have a job that trains write one now, and say which step it holds.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "api/spec/checkpoint_request.h"
#include "cli/apply.h"
#include "cli/commands.h"
#include "cli/control_plane.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

using kube::Json;

constexpr absl::Duration kWritingTimeout = absl::Seconds(60);

std::string NotWritten(const Json& job, absl::Duration timeout) {
  const std::string newest = kube::StringAt(job, "/status/lastCheckpoint/name");
  const std::string state = kube::StringAt(job, "/status/state");
  return absl::StrCat("job \"", kube::NameOf(job), "\" (", state.empty() ? "Pending" : state,
                      ") has not written a checkpoint within ", absl::FormatDuration(timeout),
                      "; it still will at the next step, if it can. The newest one is ",
                      newest.empty() ? "none" : newest, "; see starling describe ",
                      kube::NameOf(job),
                      ", and starling logs where it may be that nothing can be written");
}

// `asked` is the job as it was when it had the request.
absl::StatusOr<Json> AwaitWritten(Session& session, const Json& asked, absl::Duration timeout) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  const std::string request = spec::CheckpointRequestOf(asked);
  const absl::Time deadline = session.clock().Now() + timeout;
  while (true) {
    ASSIGN_OR_RETURN(const Json job, store->Get(kube::kTrainingJob, kube::KeyOf(asked)));
    if (kube::UidOf(job) != kube::UidOf(asked)) {
      return absl::NotFoundError(
          absl::StrCat("job \"", kube::NameOf(asked), "\" was replaced meanwhile"));
    }
    const Json& answer = kube::At(job, "/status/requestedCheckpoint");
    if (kube::StringAt(answer, "/request") == request) return kube::At(answer, "/checkpoint");
    if (spec::CheckpointRequestOf(job) != request) {
      return absl::AbortedError(absl::StrCat("somebody else has asked job \"", kube::NameOf(asked),
                                             "\" for a checkpoint since"));
    }
    RETURN_IF_ERROR(spec::CheckCheckpointRequest(job));
    if (session.interrupts().count() > 0) return absl::CancelledError("interrupted");
    if (session.clock().Now() > deadline) {
      return absl::DeadlineExceededError(NotWritten(job, timeout));
    }
    session.interrupts().Wait(session.poll());
  }
}

absl::Status Checkpoint(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const absl::Duration timeout,
                   DurationFlag(arguments, "timeout", kWritingTimeout));
  const kube::ObjectKey key = JobKey(arguments, arguments.names[0]);
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  ASSIGN_OR_RETURN(const Json job, store->Get(kube::kTrainingJob, key));
  RETURN_IF_ERROR(spec::CheckCheckpointRequest(job));
  if (!session.remote() && !ControllerRuns(session.home())) {
    return absl::UnavailableError(
        "no control plane is up, so nothing trains: start it with `starling up`");
  }
  ASSIGN_OR_RETURN(const Json asked,
                   store->Patch(kube::kTrainingJob, key,
                                spec::CheckpointRequestPatch(job, session.clock().WallNow())));
  const std::string what = absl::StrCat("trainingjob.starling.dev/", key.name, " checkpoint ");
  if (arguments.Has("no-wait")) {
    session.terminal().Print(what + "requested\n");
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Json written, AwaitWritten(session, asked, timeout));
  session.terminal().Print(absl::StrCat(what, kube::StringAt(written, "/name"), " written at step ",
                                        kube::IntAt(written, "/step"), "\n"));
  return absl::OkStatus();
}

}  // namespace

int CheckpointCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Checkpoint(session, arguments));
}

}  // namespace starling::cli
