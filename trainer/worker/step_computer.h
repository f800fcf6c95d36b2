// SPDX-License-Identifier: Apache-2.0
// One step up to its exchange: choose the samples, bring the parameters up to date, compute
// gradients, validate if it is due, and hand all of it to the exchange, whichever it is.
//
// Where workers make a step together, nothing here changes the state: whether the sum is applied is
// decided afterwards, by the membership machine. In reproducible mode the samples are a few of the
// batch's groups, computed one by one; otherwise they are one stretch of the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/deadline.h"
#include "common/ranges/ranges.h"
#include "trainer/data/batches.h"
#include "trainer/exchange/exchange.h"
#include "trainer/observe/stopwatch.h"
#include "trainer/worker/local_steps.h"
#include "trainer/workload/workload.h"

namespace starling::worker {

struct StepRequest {
  int64_t step = 0;  // that it makes, or whose batch the portions are of; from 1
  // This worker's portions of the batch, of so many equal ones: in lockstep its rank of the view's
  // size, with a lease queue those of its leases.
  data::Range portions = {0, 1};
  int64_t of = 1;
  consistency::LeaseRun leases{0};  // with a lease queue
  // This worker's portions of the next step are probably these; not with a lease queue.
  bool next_is_alike = true;
  bool empty = false;        // no gradients: it only settles the state before
  bool interrupted = false;  // others may have begun it, in a view that has broken
  bool last = false;         // no other one is to be made after it
  bool validate = false;     // the state before
  double loss_scale = 1;     // workload::Client's
  std::vector<int64_t> control;
  net::Deadline deadline = net::Deadline::Never();
};

struct StepOutcome {
  std::vector<int64_t> control_min;
  std::vector<int64_t> control_max;
  int64_t batch = 0;               // samples of the whole batch; 0 when empty
  int64_t own = 0;                 // of them, those that this worker computed
  absl::Duration exchange;         // from the end of computing to the end of the exchange
  workload::Sums sums = {};        // of the metrics, over what Outcome::statistics is of
  workload::Values training = {};  // their means
  // The metrics' means over the validation set, of the state before. Not where some worker has read
  // another one from the servers (Outcome::of_state_before).
  std::optional<workload::Values> validation;
  bool finite = true;  // loss and all gradients are numbers
};

// Why a job fails whose step's outcome is not finite.
absl::Status Diverged(int64_t step, const StepOutcome& outcome);

// Confined to the loop's thread.
class StepComputer {
 public:
  struct Parts {
    const v1alpha1::TrainingJobSpec& spec;
    workload::Workload& workload;
    data::Batches batches;
    exchange::Exchange& exchange;
    observe::Stopwatch& stopwatch;
    // Not 0: a batch has so many groups, whatever its size, and each is a portion of it.
    int64_t portions = 0;
    timeline::Recorder* recorder = nullptr;  // of steps; null: nowhere
  };
  explicit StepComputer(const Parts& parts)
      : parts_(parts),
        local_steps_(NewLocalSteps(parts.spec, parts.workload, parts.batches.batch())) {}

  const data::Batches& batches() const { return parts_.batches; }
  bool has_validation() const { return parts_.workload.declaration().validation_samples > 0; }

  // In a view that the exchange has entered. After success with allreduce the workload's gradients
  // hold the sum over the batch, the same bits at every rank. Errors are the exchange's
  // (UNAVAILABLE for the end of the view, ABORTED for a step that is not wanted any more); what
  // fails in the workload is never called so, but CANCELLED there is the end of the view.
  absl::StatusOr<StepOutcome> Run(const StepRequest& request);
  // The workload's parameters were overwritten by someone else.
  void ForgetCopy() { local_steps_->ForgetCopy(); }
  // A view begins: how long the last step took says nothing of those of this one.
  void ForgetLap() { lap_ = Lap(); }

 private:
  // Of the last step that workers made together. They begin a step at the same moment, the end of
  // the one before, so whoever took less than the slowest waited for it. It is known a step later:
  // laps travel in the control word.
  struct Lap {
    absl::Time ended = absl::InfinitePast();
    absl::Duration own;       // until this worker came to the exchange
    absl::Duration exchange;  // from there to its end; 0: it was not counted as exchange
  };
  absl::StatusOr<StepOutcome> RunStep(const StepRequest& request);
  std::vector<int64_t> ControlOf(const StepRequest& request) const;
  void TakeLaps(exchange::Outcome& reduced);

  struct Layout {
    int rank = 0;
    int size = 1;
    int64_t batch = 0;
    int groups = 1;
    ranges::Range<int> mine;
    int columns = 1;
    std::vector<data::Range> positions;  // by group of `mine`, each after the one before
  };
  Layout LayOut(const StepRequest& request) const;
  void ExpectNext(const StepRequest& request);
  absl::Status ComputeMine(const StepRequest& request, const Layout& layout,
                           std::span<const int64_t> samples, std::span<double> statistics);
  absl::Status ComputeGroup(const StepRequest& request, std::span<const int64_t> samples, int group,
                            std::span<double> columns);
  int MetricColumns() const;
  absl::Status ValidateMine(const Layout& layout, std::span<double> statistics);

  const Parts parts_;
  const std::unique_ptr<LocalSteps> local_steps_;
  Lap lap_;
};

}  // namespace starling::worker
