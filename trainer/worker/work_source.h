// SPDX-License-Identifier: Apache-2.0
// Where a worker's work comes from, and what becomes of it when it is done.
//
//   lockstep.h   all workers hold the whole state and make every step together, each its share of
//                the batch; the membership machine says whether a step counts
//   hybrid.h     the same, with some of the tensors on parameter servers
//   leases.h     the coordinator gives out batches or portions of them, and parameter servers hold
//                the state
//
// What both have in common is in training_loop.h (views, settings, the end) and progress.h (what is
// told). To add one: implement WorkSource, a line in MakeWorkSource (worker.cc).
//
// Errors of Enter, Begin, Work and Do: UNAVAILABLE means that the view has ended here, with the
// ranks that could not be reached (transport::UnreachableRanks), and the worker waits for the next;
// any other error ends training, and its message is the job's failure.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/data/batches.h"
#include "trainer/membership/member.h"
#include "trainer/observe/stopwatch.h"
#include "trainer/worker/member_shell.h"
#include "trainer/worker/progress.h"
#include "trainer/worker/training_board.h"
#include "trainer/worker/view_links.h"
#include "trainer/worker/worker.h"
#include "trainer/worker/worker_metrics.h"

namespace starling::worker {

using observe::Activity;

// What the parts of one worker share; all of it outlives them.
struct Context {
  const WorkerConfig& config;
  const WorkerParts& parts;
  const data::Batches& batches;  // one step each
  MemberShell& shell;
  ViewLinks& links;
  TrainingBoard& board;
  observe::Stopwatch& stopwatch;
  WorkerMetrics& metrics;
  Progress& progress;

  const v1alpha1::TrainingJobSpec& spec() const { return config.spec; }
  const workload::Declaration& declared() const { return parts.workload.declaration(); }
  // So long a worker waits before each step (spec.experiment.stepDelay).
  absl::Duration step_delay() const {
    const google::protobuf::Duration& delay = config.spec.experiment().step_delay();
    return absl::Seconds(delay.seconds()) + absl::Nanoseconds(delay.nanos());
  }
};

// Confined to the loop's thread, but for Hear and Fill, which are thread-safe.
class WorkSource {
 public:
  virtual ~WorkSource() = default;

  // The mesh of the view is open. Whoever holds a state hears from the machine what comes next;
  // a client can work when this returns.
  virtual absl::Status Enter(const membership::View& view) = 0;
  // The view has ended here, and its mesh is about to close.
  virtual void Leave() = 0;
  // The machine lets work begin, or go on in another way.
  virtual absl::Status Begin(const membership::Run& run) = 0;
  // The settings have changed: what is in force stands in Context.progress.
  virtual void OnSettings() {}
  // One unit of work, or a moment's wait for one. It returns when an action has come.
  virtual absl::Status Work() = 0;
  // What the machine wants of the state that this worker holds; other actions are the loop's.
  virtual absl::Status Do(const membership::Action& action) = 0;
  // While there is nothing to work: what is to be tried again, and how long the loop may then wait
  // for an action.
  virtual absl::StatusOr<absl::Duration> Idle() { return absl::InfiniteDuration(); }

  // A directive that the machine has taken, with the view that it has installed.
  virtual void Hear(const membership::Directive& /*directive*/,
                    membership::ViewNumber /*installed*/) {}
  // Completes a report that the machine has begun.
  virtual void Fill(membership::Report& /*report*/) const {}
};

}  // namespace starling::worker
