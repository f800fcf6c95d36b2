// SPDX-License-Identifier: Apache-2.0
// The streams from the controller to the coordinators of its jobs: what the reconciler sees of
// them.
//
// One direction of dialling: the controller dials the coordinator, never the other way round. What
// is known here is soft: a new controller process dials anew and is told everything again.
#pragma once

#include <string_view>
#include <vector>

#include "controller/runtime/work_queue.h"
#include "controller/trainingjob/decision.h"
#include "controller/trainingjob/observed.h"

namespace starling::trainingjob {

// Thread-safe, all implementations. None of the methods waits.
class CoordinatorLinks {
 public:
  virtual ~CoordinatorLinks() = default;

  // From now on a stream to each of these coordinators, and to no other of the job, is kept up, and
  // what is wanted is said immediately on a change and every second. `job_uid` says which job it is
  // that both ends must be of. None: the job's streams end.
  virtual void Supervise(const runtime::Key& job, const std::vector<Supervision>& supervisions,
                         std::string_view job_uid) = 0;
  void Release(const runtime::Key& job) { Supervise(job, {}, ""); }

  // What has been heard, of each stream that is kept.
  virtual std::vector<ObservedLink> Look(const runtime::Key& job) const = 0;
};

}  // namespace starling::trainingjob
