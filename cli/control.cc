// SPDX-License-Identifier: Apache-2.0
// up and down: the control plane in the background.
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/control_plane.h"
#include "cli/exit_code.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

using kube::Json;

constexpr absl::Duration kUpTimeout = absl::Seconds(30);
constexpr absl::Duration kDownTimeout = absl::Seconds(60);
constexpr absl::Duration kPoll = absl::Milliseconds(20);

Json ReadReady(const Home& home) {
  std::ifstream file(home.ControllerReady());
  std::stringstream text;
  text << file.rdbuf();
  Json ready = Json::parse(text.str(), nullptr, false);
  return ready.is_discarded() ? Json() : ready;
}

// As the lock says, or else the file that the lock's holder has written its pid into.
pid_t PidOfController(const Home& home) {
  if (const auto holder = LockHolder(home.ControllerLock())) return *holder;
  std::ifstream file(home.ControllerLock());
  pid_t pid = 0;
  file >> pid;
  return pid;
}

bool IsReady(const Home& home) {
  return kube::IntAt(ReadReady(home), "/pid") == PidOfController(home);
}

// Where the page is. Whoever has the token may do everything, so that a person is given it in the
// part of the address that browsers keep for themselves, and no file or pipe is.
std::string PageLine(Session& session, const std::string& url) {
  std::ifstream file(session.home().ApiToken());
  std::string token;
  if (session.terminal().person() && std::getline(file, token) && !token.empty()) {
    return absl::StrCat("page: ", url, "/#token=", token, "\n");
  }
  return absl::StrCat("page: ", url, "/ (its token is in ", session.home().ApiToken(), ")\n");
}

void SayUp(Session& session, std::string_view what) {
  const Json ready = ReadReady(session.home());
  const std::string url = kube::StringAt(ready, "/restUrl");
  session.terminal().Print(absl::StrCat(
      "control plane ", std::string(what), " (pid ", kube::IntAt(ready, "/pid"), ", metrics at ",
      kube::StringAt(ready, "/metricsAddress"), ", REST at ", url, ")\n", PageLine(session, url)));
}

absl::Status AwaitReady(Session& session, const process::Process& started, absl::Duration timeout) {
  const Home& home = session.home();
  const absl::Time deadline = session.clock().Now() + timeout;
  while (!ControllerRuns(home) || !IsReady(home)) {
    if (started.WaitForEnd(absl::ZeroDuration()) && !ControllerRuns(home)) {
      return absl::UnavailableError(absl::StrCat("the controller has ended; the end of ",
                                                 home.ControllerLog(), ":\n",
                                                 LastLines(home.ControllerLog(), 5)));
    }
    if (session.interrupts().count() > 0) return absl::CancelledError("interrupted");
    if (session.clock().Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the control plane is not ready after ",
                                                      absl::FormatDuration(timeout), "; see ",
                                                      home.ControllerLog()));
    }
    session.interrupts().Wait(kPoll);
  }
  return absl::OkStatus();
}

// A controller that `run` has started leaves with its jobs and cannot be told to stay.
bool WillLeave(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"));
  std::stringstream command;
  command << file.rdbuf();
  return command.str().find("--exit-when-idle") != std::string::npos;
}

absl::Status RequireThisMachine(const Session& session) {
  if (!session.remote()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "up and down are of this machine; run them there, without --server; a cluster's controller "
      "is "
      "installed with helm");
}

absl::Status Up(Session& session, const Arguments& arguments) {
  RETURN_IF_ERROR(RequireThisMachine(session));
  ASSIGN_OR_RETURN(const absl::Duration timeout, DurationFlag(arguments, "timeout", kUpTimeout));
  if (ControllerRuns(session.home())) {
    const pid_t pid = PidOfController(session.home());
    if (WillLeave(pid)) {
      return absl::FailedPreconditionError(
          absl::StrCat("a `starling run` is under way, and its controller (pid ", pid,
                       ") leaves when its jobs are done; run `starling up` again then, or "
                       "`starling down` first"));
    }
    SayUp(session, "is up already");
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const process::Process started, StartController(session, /*stay=*/true));
  RETURN_IF_ERROR(AwaitReady(session, started, timeout));
  SayUp(session, "is up");
  return absl::OkStatus();
}

absl::Status Down(Session& session, const Arguments& arguments) {
  RETURN_IF_ERROR(RequireThisMachine(session));
  ASSIGN_OR_RETURN(const absl::Duration timeout, DurationFlag(arguments, "timeout", kDownTimeout));
  const Home& home = session.home();
  if (!ControllerRuns(home)) {
    session.terminal().Print("control plane is not up\n");
    return absl::OkStatus();
  }
  const auto stat = process::ReadStat(PidOfController(home));
  RETURN_IF_ERROR(stat.status());
  ASSIGN_OR_RETURN(const process::Process controller, process::Process::Adopt(stat->identity));
  RETURN_IF_ERROR(controller.Signal(SIGTERM));
  session.terminal().Say("waiting for all pods to save their work");
  const absl::Time deadline = session.clock().Now() + timeout;
  while (!controller.WaitForEnd(absl::Milliseconds(100))) {
    if (session.interrupts().count() > 0) return absl::CancelledError("interrupted");
    if (session.clock().Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the control plane has not ended after ",
                                                      absl::FormatDuration(timeout), "; see ",
                                                      home.ControllerLog()));
    }
  }
  session.terminal().Print("control plane is down\n");
  return absl::OkStatus();
}

}  // namespace

int UpCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Up(session, arguments));
}

int DownCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Down(session, arguments));
}

}  // namespace starling::cli
