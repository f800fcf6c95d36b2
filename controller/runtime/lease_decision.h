// SPDX-License-Identifier: Apache-2.0
// Who leads, decided from one Lease (coordination.k8s.io/v1): the rules, without threads or I/O.
//
// Several processes run, one leads: the holder of the lease. It renews every `retry`; who has seen
// no renewal for the lease's duration takes it. Clocks of different machines are never compared:
// what counts is for how long *this* process has seen the lease unchanged, by its own monotonic
// clock. A leader that could not renew for `renew_deadline` stops by itself, and since that is less
// than the duration it stops before anyone else begins:
//
//   leader:   renews at t ............ stops at t + renew_deadline
//   another:  sees it at t or later ........... takes it at t + duration or later
//
// Each new holder counts one transition, by which whoever is led tells old leaders from new ones.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace starling::runtime {

struct ElectionOptions {
  std::string identity;  // unlike that of any other process, earlier ones in the same pod included
  std::string ns = "starling-system";
  std::string name = "starling-controller";
  absl::Duration duration = absl::Seconds(15);
  absl::Duration renew_deadline = absl::Seconds(10);
  absl::Duration retry = absl::Seconds(2);
};

// InvalidArgument unless retry < renew_deadline < duration, with room for a request in between.
absl::Status CheckElection(const ElectionOptions& options);

// What a Lease says. Its times are for people: no decision reads them.
struct LeaseRecord {
  std::string version;  // resourceVersion
  std::string holder;   // empty: given back
  absl::Duration duration;
  std::int64_t transitions = 0;
  std::string acquired;  // as written, for people
};
LeaseRecord ReadLease(const nlohmann::json& lease);

// What one process remembers. Times are its own monotonic ones.
struct ElectionState {
  bool asked = false;                // the lease has been read, or found not to be there
  std::optional<LeaseRecord> lease;  // as last seen; nothing: not there
  absl::Time changed;                // when it was first seen so
  bool leads = false;
  bool was_leader = false;  // and no longer is: for good, a process leads once
  absl::Time renewed;       // when the last renewal that succeeded was begun
};

// Takes note of a lease as read or written at `now`, or of there being none.
void Observe(const ElectionOptions& options, std::optional<LeaseRecord> lease, absl::Time now,
             ElectionState& state);
// Takes note that this process has written the lease, in a request that was begun at `begun`.
void NoteHeld(LeaseRecord lease, absl::Time begun, ElectionState& state);

enum class ElectionAct {
  kRead,    // ask for the lease
  kCreate,  // there is none: make it
  kTake,    // nobody holds it, or its holder is gone
  kRenew,   // it is ours
  kStop,    // it was ours and is not any more: stop immediately
  kWait,
};
struct ElectionAction {
  ElectionAct act;
  absl::Duration wait;  // before the next decision, if this one is not acted upon or fails
};

// Total: every state gives an action.
ElectionAction DecideElection(const ElectionOptions& options, const ElectionState& state,
                              absl::Time now);

// Whether a leader's writes may still be made.
bool MayWrite(const ElectionOptions& options, const ElectionState& state, absl::Time now);

}  // namespace starling::runtime
