// SPDX-License-Identifier: Apache-2.0
// A program whose own loop makes the steps, such as a script (trainer/embed): the training state
// lies in its memory and changes by its code, when the worker has said that a step counts.
//
// The worker's loop runs on a thread of its own. Where a built-in workload computes, the program's
// Workload hands the step out and waits for the gradients; then the program waits for what becomes
// of the step: Applied, or Dropped. Between the two sides one rule holds, and copies, checkpoints
// and results rely on it: the bytes of the state are touched here only after AwaitBoundary, and
// from then on the program stands still until it is given a step, or is told that training is over.
//
// Without such a program nothing below does anything. To add something that the program is told:
// a call here, in Lockstep, and in trainer/embed's Handover.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "trainer/checkpoint/state_parts.h"
#include "trainer/membership/types.h"

namespace starling::worker {

struct StepRequest;
struct StepOutcome;

// Called on the loop's thread, but for Interrupt.
class OwnLoop {
 public:
  virtual ~OwnLoop() = default;

  // Whether the steps are the program's at all.
  virtual bool present() const { return false; }
  // Adds the program's state. Once, before the first view.
  virtual void Register(checkpoint::StateParts& /*parts*/) {}
  // The tensors of the result's model file, in the program's memory; none: the workload's.
  virtual std::optional<std::vector<checkpoint::TensorView>> Model() const { return std::nullopt; }

  // What the workload will be asked to compute in `view`, perhaps in several portions. Returns when
  // the program has done with the gradients of the step before; CANCELLED when the view has ended.
  virtual absl::Status Prepare(membership::ViewNumber /*view*/, const StepRequest& /*request*/) {
    return absl::OkStatus();
  }
  // The step counts: the workload's gradients hold the sum, and the program updates its state.
  virtual void Applied(std::int64_t /*step*/, const StepOutcome& /*outcome*/) {}
  // The view has ended. What was handed out and has not counted yet never will.
  virtual void Dropped() {}

  // Until the program stands still between two steps. UNAVAILABLE when the process is to end.
  virtual absl::Status AwaitBoundary() { return absl::OkStatus(); }
  // The bytes of the state are others' now.
  virtual void Replaced() {}

  // All steps are made and settled, for as long as this view lasts.
  virtual void Over() {}
  // Whether the program has done what it does after its last step; only then is the result written.
  virtual bool Finished() const { return true; }

  // Views below this one have ended, or are about to. Called on any thread.
  virtual void Interrupt(membership::ViewNumber /*below*/) {}
};

}  // namespace starling::worker
