// SPDX-License-Identifier: Apache-2.0
#include "controller/local/pod_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/local/folders.h"

namespace starling::local {
namespace {

using kube::Json;

std::string StatePath(const std::string& folder) { return folder + "/state.json"; }
std::string RecordPath(const std::string& folder) { return folder + "/exit.json"; }
std::string LogPath(const std::string& folder) { return folder + "/log"; }

absl::Time TimeAt(const Json& json, std::string_view pointer, absl::Time otherwise) {
  absl::Time time;
  std::string ignored;
  return absl::ParseTime(absl::RFC3339_full, kube::StringAt(json, pointer), &time, &ignored)
             ? time
             : otherwise;
}

// The exit record that the supervisor wrote, if it did.
std::optional<Outcome> ReadRecord(const std::string& folder, const PodState& state,
                                  absl::Time now) {
  const auto text = ReadFile(RecordPath(folder));
  if (!text.ok()) return std::nullopt;
  const Json record = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return std::nullopt;
  Outcome outcome;
  outcome.exit_code = static_cast<int>(kube::IntAt(record, "/exitCode"));
  outcome.signal = static_cast<int>(kube::IntAt(record, "/signal"));
  outcome.restarts = static_cast<int>(kube::IntAt(record, "/restarts"));
  outcome.reason = kube::StringAt(record, "/reason");
  outcome.message = kube::StringAt(record, "/message");
  outcome.started = TimeAt(record, "/startedAt", state.started);
  outcome.finished = TimeAt(record, "/finishedAt", now);
  return outcome;
}

Outcome OutcomeOf(const process::ExitStatus& status, const std::string& folder,
                  const PodState& state, absl::Time now) {
  return {.exit_code = status.ShellCode(),
          .signal = status.signal,
          .reason = status.Succeeded() ? "Completed" : "Error",
          .message = status.Succeeded() ? "" : LastLines(LogPath(folder)),
          .started = state.started,
          .finished = now};
}

std::string ValueOf(const std::vector<std::string>& environment, std::string_view name) {
  const std::string prefix = absl::StrCat(std::string(name), "=");
  for (const std::string& entry : environment) {
    if (entry.starts_with(prefix)) return entry.substr(prefix.size());
  }
  return {};
}

// Kills what `doomed` says of every process by its environment, until none is left that is new.
void KillByEnvironment(const std::function<bool(const std::vector<std::string>&)>& doomed) {
  const pid_t self = getpid();
  for (bool again = true; again;) {
    again = false;
    for (const pid_t pid : process::ListProcesses()) {
      if (pid == self) continue;
      // In this order: what the environment is read from is the process that is signalled.
      const auto stat = process::ReadStat(pid);
      if (!stat.ok() || stat->Ended() || !doomed(process::ReadEnvironment(pid))) continue;
      const auto process = process::Process::Adopt(stat->identity);
      if (!process.ok() || !process->Signal(SIGKILL).ok()) continue;
      // A process may have forked before it died: look again.
      again = process->WaitForEnd(absl::Seconds(5)) || again;
    }
  }
}

}  // namespace

absl::Status WritePodState(const std::string& folder, const PodState& state) {
  const Json json = {
      {"namespace", state.key.ns},
      {"name", state.key.name},
      {"uid", state.uid},
      {"ip", state.ip},
      {"bootId", state.boot_id},
      {"pid", state.process.pid},
      {"startTime", state.process.start_time},
      {"startedAt", absl::FormatTime(absl::RFC3339_full, state.started, absl::UTCTimeZone())}};
  return WriteFile(StatePath(folder), json.dump() + "\n", 0600);
}

absl::StatusOr<PodState> ReadPodState(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(StatePath(folder)));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  PodState state;
  state.key = {.ns = kube::StringAt(json, "/namespace"), .name = kube::StringAt(json, "/name")};
  state.uid = kube::StringAt(json, "/uid");
  state.ip = kube::StringAt(json, "/ip");
  state.boot_id = kube::StringAt(json, "/bootId");
  state.process.pid = static_cast<pid_t>(kube::IntAt(json, "/pid"));
  state.process.start_time = static_cast<std::uint64_t>(kube::IntAt(json, "/startTime"));
  state.started = TimeAt(json, "/startedAt", absl::UnixEpoch());
  if (state.uid.empty()) {
    return absl::DataLossError(absl::StrCat(StatePath(folder), " is damaged"));
  }
  return state;
}

absl::StatusOr<PodProcess> PodProcess::Start(process::LaunchPlan plan, PodState state,
                                             const std::string& folder) {
  unlink(RecordPath(folder).c_str());
  const int log = open(LogPath(folder).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", LogPath(folder)));
  }
  plan.standard_output = log;
  plan.standard_error = log;
  auto process = process::Start(plan);
  close(log);
  RETURN_IF_ERROR(process.status());
  state.process = process->identity();
  PodProcess pod(std::move(*process), std::move(state), folder);
  if (const absl::Status written = WritePodState(folder, pod.state_); !written.ok()) {
    // A successor could not find this process: no pod is better than an orphan.
    pod.Kill();
    pod.process_.WaitForEnd(absl::Seconds(5));
    pod.process_.Reap().IgnoreError();
    return written;
  }
  return pod;
}

absl::StatusOr<PodProcess> PodProcess::Adopt(const PodState& state, const std::string& folder) {
  if (state.boot_id != process::BootId()) {
    return absl::NotFoundError("the machine was booted since the pod was started");
  }
  ASSIGN_OR_RETURN(process::Process process, process::Process::Adopt(state.process));
  return PodProcess(std::move(process), state, folder);
}

void PodProcess::Terminate() const { process_.Signal(SIGTERM).IgnoreError(); }

void PodProcess::Kill() const {
  if (!process_.SignalGroup(SIGKILL).ok()) process_.Signal(SIGKILL).IgnoreError();
}

Outcome PodProcess::Collect(absl::Time now) {
  // While our own child is not reaped, its group's number is protected. An adopted one was reaped
  // by somebody else: what is left of it is found by its environment.
  const bool group_killed = process_.SignalGroup(SIGKILL).ok();
  const auto status = process_.Reap();
  if (!group_killed || !status.ok()) KillPodProcesses(state_.uid);
  const auto record = ReadRecord(folder_, state_, now);
  if (!status.ok()) return OutcomeFromFolder(folder_, state_, now);
  // The record tells more than the status, unless the supervisor did not live to write it.
  if (record && record->exit_code == status->ShellCode() && status->signal == 0) return *record;
  return OutcomeOf(*status, folder_, state_, now);
}

Outcome OutcomeFromFolder(const std::string& folder, const PodState& state, absl::Time now) {
  if (const auto record = ReadRecord(folder, state, now)) return *record;
  return OutcomeOf({.code = 0, .signal = SIGKILL}, folder, state, now);
}

std::optional<process::ProcessIdentity> FindPodProcess(const std::string& home,
                                                       const std::string& pod_uid) {
  for (const pid_t pid : process::ListProcesses()) {
    const auto stat = process::ReadStat(pid);
    if (!stat.ok() || stat->Ended() || stat->group != pid) continue;
    const auto environment = process::ReadEnvironment(pid);
    if (ValueOf(environment, kPodUidVariable) == pod_uid &&
        ValueOf(environment, kHomeVariable) == home) {
      return stat->identity;
    }
  }
  return std::nullopt;
}

void KillStrays(const std::string& home, const std::set<std::string>& keep) {
  KillByEnvironment([&](const std::vector<std::string>& environment) {
    const std::string uid = ValueOf(environment, kPodUidVariable);
    return !uid.empty() && !keep.contains(uid) && ValueOf(environment, kHomeVariable) == home;
  });
}

void KillPodProcesses(const std::string& pod_uid) {
  STARLING_CHECK(!pod_uid.empty(), "a pod has a UID; processes of no pod are none of ours");
  KillByEnvironment([&](const std::vector<std::string>& environment) {
    return ValueOf(environment, kPodUidVariable) == pod_uid;
  });
}

}  // namespace starling::local
