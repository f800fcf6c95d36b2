// SPDX-License-Identifier: Apache-2.0
// The main loop of a worker: the membership machine's actions are carried out in order, and while
// it says run, work is done.
//
// Everything happens on one thread. Between two actions the loop does one unit of work, whose kind
// is the WorkSource's business; what concerns views, settings and the end stands here, once for all
// kinds of jobs. Whatever goes wrong with a peer is an event for the machine, not an error of the
// loop. To add an action: a Do for it here, or in the source that holds a state (lockstep.h).
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "trainer/worker/work_source.h"

namespace starling::worker {

// Confined to one thread.
class TrainingLoop {
 public:
  // Both outlive it.
  TrainingLoop(const Context& context, WorkSource& source) : context_(context), source_(source) {}

  // Until the machine says Exit (OK), or training cannot go on: the status says why, and the board
  // has it as the job's failure.
  absl::Status Run();

 private:
  absl::Status Turn();
  bool Running() const;
  // Ends the view here, as far as it has not ended yet.
  void CloseView();
  void Broken(const absl::Status& status);
  // The view has ended unplanned: time, activity and timeline say so.
  void NoteBreak();
  // In the timeline, while somebody looks; `what` is a literal.
  void Record(std::string_view what);

  absl::Status Do(const membership::Fence& action);
  absl::Status Do(const membership::AbortView& action);
  absl::Status Do(const membership::OpenMesh& action);
  absl::Status Do(const membership::Run& action);
  absl::Status Do(const membership::ApplySettings& action);
  absl::Status Do(const membership::SendReport&) { return absl::OkStatus(); }
  absl::Status Do(const membership::Exit& action);
  absl::Status Do(const membership::Pause& action);
  // All others are about the state that this worker holds.
  template <typename OfState>
  absl::Status Do(const OfState& action) {
    return source_.Do(action);
  }

  const Context& context_;
  WorkSource& source_;
  membership::View view_;                   // the newest that was opened
  std::optional<membership::Run> running_;  // of that view
  bool exiting_ = false;
};

}  // namespace starling::worker
