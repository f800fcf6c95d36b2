// SPDX-License-Identifier: Apache-2.0
// run and submit: from a file to a job, watched or not.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/apply.h"
#include "cli/commands.h"
#include "cli/control_plane.h"
#include "cli/exit_code.h"
#include "cli/follow.h"
#include "cli/job_source.h"
#include "cli/pages.h"
#include "cli/rest_apply.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

using kube::Json;

absl::StatusOr<LoadedJob> Load(Session& session, const Arguments& arguments) {
  const std::string output = arguments.Get("output");
  if (!output.empty() && output != "json") {
    return absl::InvalidArgumentError(absl::StrCat("-o ", output, ": only json is known here"));
  }
  RETURN_IF_ERROR(UseTemplates(session, arguments));
  return LoadJob({.file = arguments.names[0],
                  .settings = arguments.All("set"),
                  .ns = arguments.Get("namespace"),
                  .check_data = session.sees_files(),
                  .default_ns = session.default_namespace(),
                  .relative_uris = !session.sees_files(),
                  .remember_spec = !session.in_cluster(),
                  .find = session.remote() ? nullptr : session.FindsTemplates()});
}

std::string WhatWasDone(const Applied& applied) {
  switch (applied.step) {
    case ApplyStep::kGoOn:
      return "going on with the job that is there";
    case ApplyStep::kStartAnew:
      return "the finished job of that name is in the history now; a new one starts";
    case ApplyStep::kReplace:
      return "the job of that name was stopped and replaced";
    default:
      return "created";
  }
}

void SayStart(Session& session, const Applied& applied) {
  Terminal& terminal = session.terminal();
  terminal.Say(absl::StrCat(terminal.PaintError(Style::kDim, kube::NameOf(applied.job) + ":"), " ",
                            WhatWasDone(applied)));
}

int CodeOf(const Followed& followed, bool file_suspends) {
  switch (followed.end) {
    case FollowEnd::kFinished:
      return kube::IsConditionTrue(followed.job, "Succeeded") ? kSuccess : kFailed;
    case FollowEnd::kSuspended:
      return file_suspends ? kSuccess : kInterrupted;
    case FollowEnd::kLeft:
      return kInterrupted;
    case FollowEnd::kDeleted:
      return kNotFound;
  }
  return kFailed;
}

// The end of the story: numbers for a finished job, a sentence for every other.
void SayEnd(Session& session, const Followed& followed, bool json) {
  Terminal& terminal = session.terminal();
  const std::string name = kube::NameOf(followed.job);
  switch (followed.end) {
    case FollowEnd::kFinished: {
      const std::string page = FinalPage(ToMessage(followed.job));
      if (json) {
        terminal.Say(page);
      } else {
        terminal.Print(page);
      }
      break;
    }
    case FollowEnd::kSuspended:
      terminal.Say(absl::StrCat(name, " is suspended; go on with: starling resume ", name));
      break;
    case FollowEnd::kLeft:
      terminal.Say(absl::StrCat(name, kube::IsConditionTrue(followed.job, "Suspended")
                                          ? " is saved and suspended; the same command goes on"
                                          : ": left"));
      break;
    case FollowEnd::kDeleted:
      terminal.Say(absl::StrCat(name, " was deleted"));
      break;
  }
  if (json) terminal.Print(json::Dump(followed.job) + "\n");
}

// Tells the story of a job to its end.
absl::StatusOr<int> FollowToTheEnd(Session& session, const Json& job, bool file_suspends,
                                   bool json) {
  ControllerKeeper keeper(session);
  Follower follower(session, keeper, /*only_watch=*/true);
  ASSIGN_OR_RETURN(const Followed followed, follower.Follow(job));
  SayEnd(session, followed, json);
  return CodeOf(followed, file_suspends);
}

// To a cluster or over REST; `what` was done is one word.
absl::StatusOr<Json> ApplyElsewhere(Session& session, const LoadedJob& wanted, bool replace,
                                    std::string& what) {
  return session.over_rest() ? ApplyOverRest(session, wanted, replace, what)
                             : ApplyToCluster(session, wanted, replace, what);
}

absl::StatusOr<int> RunElsewhere(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const LoadedJob wanted, Load(session, arguments));
  std::string what;
  ASSIGN_OR_RETURN(const Json job, ApplyElsewhere(session, wanted, arguments.Has("replace"), what));
  session.terminal().Say(absl::StrCat(kube::NameOf(job), ": ", what, "; Ctrl-C leaves it running"));
  return FollowToTheEnd(session, job, kube::BoolAt(wanted.object, "/spec/runPolicy/suspend"),
                        arguments.Get("output") == "json");
}

absl::StatusOr<int> SubmitElsewhere(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const LoadedJob wanted, Load(session, arguments));
  std::string what;
  ASSIGN_OR_RETURN(const Json job, ApplyElsewhere(session, wanted, arguments.Has("replace"), what));
  const bool json = arguments.Get("output") == "json";
  session.terminal().Print(
      json ? json::Dump(job) + "\n"
           : absl::StrCat("trainingjob.starling.dev/", kube::NameOf(job), " ", what, "\n"));
  return kSuccess;
}

absl::StatusOr<int> Watch(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  ASSIGN_OR_RETURN(const Json job,
                   store->Get(kube::kTrainingJob, JobKey(arguments, arguments.names[0])));
  return FollowToTheEnd(session, job, /*file_suspends=*/false, arguments.Get("output") == "json");
}

absl::StatusOr<int> Run(Session& session, const Arguments& arguments) {
  if (session.remote()) return RunElsewhere(session, arguments);
  ASSIGN_OR_RETURN(const LoadedJob wanted, Load(session, arguments));
  ControllerKeeper keeper(session);
  ASSIGN_OR_RETURN(const Applied applied, Apply(session, wanted, arguments.Has("replace"),
                                                [&keeper] { return keeper.Tend(); }));
  SayStart(session, applied);
  Follower follower(session, keeper);
  ASSIGN_OR_RETURN(const Followed followed, follower.Follow(applied.job));
  SayEnd(session, followed, arguments.Get("output") == "json");
  return CodeOf(followed, kube::BoolAt(wanted.object, "/spec/runPolicy/suspend"));
}

absl::StatusOr<int> Submit(Session& session, const Arguments& arguments) {
  if (session.remote()) return SubmitElsewhere(session, arguments);
  ASSIGN_OR_RETURN(const LoadedJob wanted, Load(session, arguments));
  ASSIGN_OR_RETURN(const Applied applied, Apply(session, wanted, arguments.Has("replace"),
                                                [] { return absl::OkStatus(); }));
  if (arguments.Get("output") == "json") {
    session.terminal().Print(json::Dump(applied.job) + "\n");
  } else {
    session.terminal().Print(
        absl::StrCat("trainingjob.starling.dev/", kube::NameOf(applied.job),
                     applied.step == ApplyStep::kGoOn ? " unchanged\n" : " created\n"));
  }
  if (!ControllerRuns(session.home())) {
    session.terminal().Say("no control plane is up: start it with `starling up`");
  }
  return kSuccess;
}

}  // namespace

int RunCommand(Session& session, const Arguments& arguments) {
  const absl::StatusOr<int> code = Run(session, arguments);
  return code.ok() ? *code : session.Fail(code.status());
}

int WatchCommand(Session& session, const Arguments& arguments) {
  const absl::StatusOr<int> code = Watch(session, arguments);
  return code.ok() ? *code : session.Fail(code.status());
}

int SubmitCommand(Session& session, const Arguments& arguments) {
  const absl::StatusOr<int> code = Submit(session, arguments);
  return code.ok() ? *code : session.Fail(code.status());
}

}  // namespace starling::cli
