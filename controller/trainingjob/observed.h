// SPDX-License-Identifier: Apache-2.0
// What the controller sees of one job: all that a decision may depend on, except the time.
//
// Everything here is listed anew for each decision; nothing is counted from events. Times of
// objects are wall time. What is only remembered in this process (silence, how long a pod has been
// surplus) is marked: losing it delays an action and never changes its outcome.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "controller/resources/names.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::trainingjob {

using resources::JobIdentity;
using resources::Role;

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed };

// The reason of pods that ended because their node was told to stop.
inline constexpr std::string_view kNodeShutdown = "NodeShutdown";

// How the container "trainer" ended.
struct PodExit {
  std::int64_t code = 0;
  std::int64_t signal = 0;  // 0: it exited by itself
  std::string reason;       // such as OOMKilled
  std::string message;      // the last lines of its log
  absl::Time finished;
};

struct ObservedPod {
  std::string name;
  std::string uid;
  std::string ip;  // empty: never started
  Role role = Role::kWorker;
  std::int64_t index = 0;
  PodPhase phase = PodPhase::kPending;
  bool ready = false;
  bool terminating = false;  // marked for deletion
  bool disrupted = false;    // ended by an eviction, a preemption or a node's shutdown
  std::string reason;        // of the phase
  absl::Time created;
  std::optional<PodExit> exit;
  // Remembered: since when it has been more than is wanted.
  std::optional<absl::Time> surplus_since;

  bool Terminated() const { return phase == PodPhase::kSucceeded || phase == PodPhase::kFailed; }
  bool Live() const { return !Terminated() && !terminating; }
};

// The stream to one coordinator pod. Remembered, all of it.
struct ObservedLink {
  std::string pod_uid;
  bool heard = false;     // it has reported at least once
  absl::Duration silent;  // since the last report, or since the first dial
  v1alpha1::CoordinatorReport report;
  // The process that reported before this one from the same pod, if there was one, and how long
  // nobody did in between.
  std::string former_boot_id;
  absl::Duration outage;
};

// A frozen spec.
struct ObservedConfig {
  std::int64_t generation = 0;
  bool current = false;  // the job's spec differs from it only where a running job's may
};

struct Observed {
  JobIdentity job;
  std::int64_t generation = 1;
  bool deleting = false;
  // This process is about to end, and the pods with it: they are to save their work.
  bool shutting_down = false;
  absl::Time created;
  v1alpha1::TrainingJobSpec spec;  // resolved
  std::string spec_error;          // not empty: the spec cannot be read, or breaks a rule
  v1alpha1::TrainingJobStatus status;
  std::vector<ObservedPod> pods;
  std::vector<ObservedConfig> configs;
  bool has_secret = false;
  bool has_service = false;
  std::optional<ObservedLink> link;
  // Remembered: since this process last wrote the status.
  absl::Duration since_status_write = absl::InfiniteDuration();
};

}  // namespace starling::trainingjob
