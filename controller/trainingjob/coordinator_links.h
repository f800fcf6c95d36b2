// SPDX-License-Identifier: Apache-2.0
// The streams from the controller to the coordinators of its jobs: what the reconciler sees of
// them.
//
// One direction of dialling: the controller dials the coordinator, never the other way round. What
// is known here is soft: a new controller process dials anew and is told everything again.
#pragma once

#include <optional>
#include <string_view>

#include "controller/runtime/work_queue.h"
#include "controller/trainingjob/decision.h"
#include "controller/trainingjob/observed.h"

namespace starling::trainingjob {

// Thread-safe, all implementations. None of the methods waits.
class CoordinatorLinks {
 public:
  virtual ~CoordinatorLinks() = default;

  // From now on a stream to this coordinator, and to no other of the job, is kept up, and what is
  // wanted is said immediately on a change and every second. `job_uid` says which job it is that
  // both ends must be of.
  virtual void Supervise(const runtime::Key& job, const Supervision& supervision,
                         std::string_view job_uid) = 0;

  // Ends the job's stream, if it has one.
  virtual void Release(const runtime::Key& job) = 0;

  // What has been heard; nothing if there is no stream to keep.
  virtual std::optional<ObservedLink> Look(const runtime::Key& job) const = 0;
};

}  // namespace starling::trainingjob
