// SPDX-License-Identifier: Apache-2.0
// What is to be done about a job: its new status, actions on objects, messages to its coordinator.
//
// The order is part of the contract: the status is written first, and only if that succeeded are
// the actions taken, in order and the new pods last, up to the first that fails; then the
// coordinator is told. So whatever is done has its reason on record, and a controller that dies in
// between leaves a state from which the same actions are decided again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "controller/trainingjob/observed.h"
#include "starling/v1alpha1/membership.pb.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::trainingjob {

struct CreateSecret {};
struct CreateService {};
struct CreateBudget {  // a PodDisruptionBudget
  resources::Role role;
};
struct CreateConfig {
  std::int64_t generation;
};
struct CreatePod {
  resources::Role role;
  std::int64_t index;
  std::int64_t config_generation;
  // For request and limit of the container "trainer", such as 96Mi; empty: as its template says.
  std::string memory = {};
  std::vector<std::string> avoid = {};  // nodes that it must not be placed on
  World world = {};                     // of a job that brings its own container

  friend bool operator==(const CreatePod&, const CreatePod&) = default;
};
struct DeletePod {
  std::string name;
  std::string uid;
  // 0 only for pods whose processes are known to have ended; not given: the pod's own.
  std::optional<std::int64_t> grace_seconds;
};
struct DeleteJob {};
// What was recorded for a request, in place of what an earlier one gave. That it cannot be stored
// keeps nothing else from being done.
struct StoreTrace {
  std::string request;
  std::string packed;
};
struct EmitEvent {
  bool warning;
  std::string reason;
  std::string action;
  std::string note;
};
using Action = std::variant<CreateSecret, CreateService, CreateBudget, CreateConfig, CreatePod,
                            DeletePod, DeleteJob, StoreTrace, EmitEvent>;

// A slice of the job's endpoints as it is to be.
struct SliceChange {
  std::string name;
  std::string uid;                                // of the one that is there; empty: none is
  std::vector<resources::PodEndpoint> endpoints;  // empty: it goes
};

// The coordinator to keep a stream to, and what to tell it.
struct Supervision {
  std::string pod_uid;
  std::string address;                   // IP
  std::string boot_id;                   // of the process that the messages are for
  std::optional<v1alpha1::Grant> grant;  // sent once, before the first `desired`
  // Without transition and sequence, which the link fills in. Not given: nothing is wanted yet,
  // because the coordinator has no incarnation.
  std::optional<v1alpha1::Desired> desired;
};

struct Decision {
  v1alpha1::TrainingJobStatus status;
  bool write_status = false;
  // The new status says nothing that could not be decided again from the pods that come of it.
  bool status_may_wait = false;
  std::vector<Action> actions;
  // Are made last of all. That they are refused keeps nothing else from being done.
  std::vector<SliceChange> slices;
  std::optional<Supervision> supervision;          // none: no stream
  std::optional<Supervision> standby_supervision;  // the same, of the one that waits
  std::vector<std::string> surplus;                // UIDs of pods that are to leave
  std::vector<std::string> unheard;  // UIDs of pods that the coordinator has not heard of
  bool delayed = false;              // something is wanted, but its time has not come
  bool endpoints_behind = false;     // they change, but not in this pass
  bool at_rest = false;              // nothing would be lost if the pods ended now
  absl::Duration requeue_after = absl::InfiniteDuration();
  std::vector<std::string> reasons;  // for the log: why, one sentence each
};

}  // namespace starling::trainingjob
