// SPDX-License-Identifier: Apache-2.0
// One pod that runs as a process group, started by this kubelet or by one before it.
//
// Its folder holds all that a successor needs: state.json (who it is: pid, start time, boot,
// address), log, and exit.json, which the supervisor writes before it ends.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/process.h"
#include "controller/kube/kube_client.h"

namespace starling::local {

inline constexpr char kPodUidVariable[] = "STARLING_POD_UID";
inline constexpr char kHomeVariable[] = "STARLING_HOME";

// What is written down before and after a pod's process starts.
struct PodState {
  kube::ObjectKey key;
  std::string uid;
  std::string ip;
  std::string boot_id;
  process::ProcessIdentity process;  // pid 0: about to be started
  absl::Time started;
};

absl::Status WritePodState(const std::string& folder, const PodState& state);
absl::StatusOr<PodState> ReadPodState(const std::string& folder);

// How a pod ended.
struct Outcome {
  int exit_code = 0;  // 128 + signal when a signal ended it
  int signal = 0;
  int restarts = 0;
  std::string reason;   // Completed, Error, OOMKilled, StartError, Orphaned
  std::string message;  // the last log lines
  absl::Time started;
  absl::Time finished;

  bool Succeeded() const { return exit_code == 0; }
};

// Thread-compatible.
class PodProcess {
 public:
  // Starts the container's program with its output appended to <folder>/log.
  static absl::StatusOr<PodProcess> Start(process::LaunchPlan plan, PodState state,
                                          const std::string& folder);

  // NotFound: it has ended, or the machine was booted since.
  static absl::StatusOr<PodProcess> Adopt(const PodState& state, const std::string& folder);

  const PodState& state() const { return state_; }
  int descriptor() const { return process_.descriptor(); }  // readable once it has ended
  bool HasEnded() const { return process_.WaitForEnd(absl::ZeroDuration()); }

  // SIGTERM to the first process.
  void Terminate() const;

  // SIGKILL to all of its processes.
  void Kill() const;

  // Once it has ended: kills what is left of it, reaps it if it is ours, and tells how it ended.
  Outcome Collect(absl::Time now);

 private:
  PodProcess(process::Process process, PodState state, std::string folder)
      : process_(std::move(process)), state_(std::move(state)), folder_(std::move(folder)) {}

  process::Process process_;
  PodState state_;
  std::string folder_;
};

// How a pod of a predecessor ended, by its exit record; without one, by signal 9.
Outcome OutcomeFromFolder(const std::string& folder, const PodState& state, absl::Time now);

// The running first process of a pod, found by its environment: a predecessor may have died between
// starting it and writing that down.
std::optional<process::ProcessIdentity> FindPodProcess(const std::string& home,
                                                       const std::string& pod_uid);

// SIGKILL to every process of this home's pods whose UID is not in `keep`.
void KillStrays(const std::string& home, const std::set<std::string>& keep);

// SIGKILL to every process of one pod.
void KillPodProcesses(const std::string& pod_uid);

}  // namespace starling::local
