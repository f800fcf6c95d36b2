// SPDX-License-Identifier: Apache-2.0
// What the controller sees of one job: all that a decision may depend on, except the time.
//
// Everything here is listed anew for each decision; nothing is counted from events. Times of
// objects are wall time. What is only remembered in this process (silence, how long a pod has been
// surplus) is marked: losing it delays an action and never changes its outcome.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "controller/resources/endpoints.h"
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

// Why a pod does not run, or will not for long.
struct PodProblem {
  std::string_view reason;  // one of reasons.h
  std::string message;      // of whoever noticed it: scheduler, kubelet
  absl::Time since;
};

// The round of a job that brings its own container: its workers start together and know of each
// other, by their environment. Each pod of a round carries the whole of it (kRoundAnnotation,
// kWorldAnnotation), so that any one of them is enough to complete it.
struct World {
  std::int64_t round = 0;             // from 1; 0: none
  std::vector<std::int64_t> members;  // the indexes of its pods; rank = place in this list
  std::int64_t wanted = 0;            // how many were wanted then; there may be fewer

  friend bool operator==(const World&, const World&) = default;
};
inline constexpr std::string_view kRoundAnnotation = "starling.dev/round";
inline constexpr std::string_view kWorldAnnotation = "starling.dev/world";  // "0,1,3/4"
inline constexpr std::string_view kAvoidAnnotation = "starling.dev/avoid";  // "node1,node2"

struct ObservedPod {
  std::string name;
  std::string uid;
  std::string ip;                // empty: never started
  std::vector<std::string> ips;  // all of them, of both families where the cluster has both
  std::string host;              // its name under the job's service; empty: its template took it
  Role role = Role::kWorker;
  std::int64_t index = 0;
  PodPhase phase = PodPhase::kPending;
  bool ready = false;
  bool terminating = false;  // marked for deletion
  bool disrupted = false;    // ended, or soon will be, by an eviction, a preemption, a shutdown
  std::string disruption;    // the reason of its condition DisruptionTarget
  std::string reason;        // of the phase
  std::string node;          // empty: no place has been found for it
  absl::Time created;
  absl::Time started;       // by its kubelet; the epoch: not yet
  absl::Time deletion_due;  // of a terminating pod: when its grace is over
  std::optional<PodExit> exit;
  std::optional<PodProblem> problem;
  std::int64_t memory = 0;          // bytes that the container "trainer" may use; 0: no limit
  std::vector<std::string> avoids;  // nodes that it may not be placed on
  World world;                      // of a job that brings its own container
  // Remembered: since when the coordinator has not heard of it, though it runs.
  std::optional<absl::Time> unheard_since;
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

// An EndpointSlice that leads to pods by names of this job's.
struct ObservedSlice {
  std::string name;
  std::string uid;
  bool own = true;
  std::vector<resources::PodEndpoint> endpoints;
};

// A node that a pod of the job is on.
struct ObservedNode {
  bool exists = true;
  bool ready = true;
  std::string departure;  // not empty: it is about to go, and what says so (a taint)
};

// What the API server answered to the last attempt to write something. Remembered.
struct Refusal {
  std::string_view reason;  // one of reasons.h
  std::string message;
  absl::Time at;
  int attempts = 1;  // in a row
};

// What other people's queues and schedulers say of the job.
struct Queueing {
  bool hold = false;  // no pod may be made, and those that run are to be saved and let go
  std::string reason;
  std::string message;
  std::optional<std::int64_t> worker_limit;  // a bound like maxReplicas
  std::string limit_message;
  std::optional<std::int64_t> server_limit;
  std::string server_limit_message;
  std::string warning;  // what was asked for and cannot be had; the job goes on without it
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
  std::string checkpoint_request;  // as its annotation says; empty: nobody asks for one
  std::string trace_request;       // the same, for a timeline
  std::string trace_stored;        // for which one is stored
  std::vector<ObservedPod> pods;
  std::vector<ObservedConfig> configs;
  bool has_secret = false;
  bool has_service = false;
  // Its service has a selector, as those of older controllers: its endpoints are Kubernetes' to
  // tell.
  bool service_selects = false;
  // Its own, and those of an earlier job of its name, which are not collected yet.
  std::vector<ObservedSlice> slices;
  bool has_budget = false;         // the workers' PodDisruptionBudget
  bool has_server_budget = false;  // the parameter servers'
  // By name; empty where nodes are not watched. A node that is not listed is not known to be gone.
  std::map<std::string, ObservedNode> nodes;
  // Where checkpoints go outlives the pods: see durability.h.
  bool checkpoint_durable = true;
  std::optional<Refusal> refusal;         // of an action
  std::optional<Refusal> slices_refused;  // of a change of `slices`
  Queueing queueing;
  std::optional<ObservedLink> link;
  // Where one coordinator waits beside the one that leads. Which is whose, their pods tell.
  std::optional<ObservedLink> second_link;
  // Remembered: `status` was decided by this process and is not written; nothing is.
  bool status_unwritten = false;
  // Remembered: since when `slices` are not as they should be.
  std::optional<absl::Time> endpoints_behind_since;
  // Remembered: since this process last wrote the status.
  absl::Duration since_status_write = absl::InfiniteDuration();
};

}  // namespace starling::trainingjob
