// SPDX-License-Identifier: Apache-2.0
// Where the worker's thread and the program's thread meet: the worker hands a step out and waits
// for gradients, the program waits for steps and for what becomes of them.
//
//   worker's thread                        program's thread
//   Compute: a step is offered      ->     Next returns it; the program computes
//   Compute returns                 <-     Ready for each bucket, then Reduce
//   the exchange; Applied or Dropped ->    Reduce returns kCommitted or kDropped
//
// A view that ends while the program computes does not wait for it: the worker goes on to the next
// view, and the program finds its step void when it comes back. What touches the program's state
// waits for it (OwnLoop::AwaitBoundary): it stands still in Next and after Finish only.
//
// Where the memory of the state is a copy of what lies elsewhere, such as on a GPU, the program
// brings it up to date only when the worker waits for it: Next and MayFinish then ask for it, and
// the call after that says that it is done. A state that others have written there meanwhile is
// never asked for: until the program has been told (Ticket::replaced) the copy is the newer one.
//
// To add something that the program says with a step: a field that Reduce sets, and a column of the
// sums that Compute returns.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sync/mutex.h"
#include "trainer/checkpoint/state_parts.h"
#include "trainer/data/batches.h"
#include "trainer/membership/types.h"
#include "trainer/worker/own_loop.h"
#include "trainer/worker/step_computer.h"
#include "trainer/workload/workload.h"

namespace starling::embed {

// A part of the program's state; its memory outlives the Handover.
struct OwnState {
  checkpoint::StatePart part;
  bool model = false;   // it stands in the result's model file too
  bool copied = false;  // the memory is a copy, which the program brings up to date when asked
};

// What a program says of itself before it becomes a member.
struct Description {
  std::int64_t samples = 0;  // of the training set, numbered from 0
  std::string data_digest;
  std::string numeric_identity;
  std::vector<std::string> metrics = {"loss"};
  std::vector<std::int64_t> buckets;  // their elements, in the order in which they are reduced
  std::vector<OwnState> state;
};

// What the program is to compute.
struct Ticket {
  std::int64_t step = 0;          // from 1
  std::int64_t position = 0;      // of the first sample, in the order of the epoch
  std::vector<std::int64_t> ids;  // of the samples, perhaps none
  membership::ViewNumber view = 0;
  std::int64_t rank = 0;  // of this member among `members`
  std::int64_t members = 1;
  bool replaced = false;  // the state was overwritten since the ticket before
  bool repeated = false;  // the step was handed out before
  // The step was perhaps begun in the view before, which has broken: all members are told the same.
  bool interrupted = false;
  bool last = false;  // of training, as the settings say it now
};

enum class Fate {
  kDropped,    // nothing of the step counts: it will be handed out again
  kCommitted,  // it counts, and the gradients are the mean over all members
  kPartial,    // the step has another portion for this program, which comes next
};

// The program's calls come from one thread, but for Ready, Log and view(); the worker's from its
// own.
class Handover final : public workload::Workload, public worker::OwnLoop {
 public:
  // `reproducible`: portions are a batch's groups. The parts of `description` fit their memory.
  Handover(Description description, const data::Batches& batches, bool reproducible);

  // The program's side.

  enum class Given {
    kStep,
    kOver,  // of the ticket, `replaced` alone is told
    kEnded,
    kStateWanted,  // copies are to be brought up to date; the next call says that they are
  };
  // Waits for the next step, the end of training, or the end of the worker. FAILED_PRECONDITION
  // when the step before was not reduced.
  absl::StatusOr<Given> Next(Ticket& ticket);
  // Bucket `bucket` of gradients() is complete, multiplied by the weight that Reduce will say.
  // INVALID_ARGUMENT when there is none such, or it was ready before.
  absl::Status Ready(std::int64_t bucket);
  // The mean of a metric over the samples of the step.
  absl::Status Log(std::int64_t metric, double value);
  // What a metric's sum over all members gets from this one, and what it will be divided by. Not of
  // metric 0, whose divisor is the weight of the gradients.
  absl::Status LogSum(std::int64_t metric, workload::Sum sum);
  // Of all members, in the step that counts; 0 where nobody counted anything.
  double Mean(std::int64_t metric) const;
  // Ends the program's part of the step, and waits for what becomes of it. Buckets that were not
  // ready count as zero. `weight` is this program's in the mean, not negative.
  absl::StatusOr<Fate> Reduce(double weight);
  // Whether Finish may be called: false when copies must be brought up to date before. The next
  // call says that they are.
  bool MayFinish();
  // The program does nothing to its state any more.
  void Finish();
  // Where the view stands that steps are made in: number, rank and members of a ticket.
  Ticket view() const;
  // What member `rank` of `members` computes of a step, one stretch of its batch after another, as
  // Next hands them out: its share, perhaps empty, or those of the batch's groups that are its own.
  std::vector<data::Range> Portions(std::int64_t step, std::int64_t rank,
                                    std::int64_t members) const;

  // The worker has ended: nobody waits for it any more.
  void Ended();

  // The worker's side: workload::Workload.
  std::span<float> parameters() override { return {}; }
  std::span<float> gradients() override { return gradients_; }
  bool PlaceGradients(std::span<float> memory) override;  // before the first step
  absl::StatusOr<workload::Sums> Compute(std::span<const std::int64_t> samples,
                                         const workload::Client& client) override;
  absl::StatusOr<workload::Sums> Evaluate(std::int64_t begin, std::int64_t end) override;

  // The worker's side: worker::OwnLoop.
  bool present() const override { return true; }
  void Register(checkpoint::StateParts& parts) override;
  std::optional<std::vector<checkpoint::TensorView>> Model() const override;
  absl::Status Prepare(membership::ViewNumber view, const worker::StepRequest& request) override;
  void Applied(std::int64_t step, const worker::StepOutcome& outcome) override;
  void Dropped() override;
  absl::Status AwaitBoundary() override;
  void Replaced() override;
  void Over() override;
  bool Finished() const override;
  void Interrupt(membership::ViewNumber below) override;

 private:
  // What the program has in its hands.
  enum class Held {
    kNothing,
    kStep,     // it computes
    kVoid,     // it computes what will not count
    kReduced,  // it waits for what becomes of it
  };

  bool IsFresh() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return fresh_ || !copied_; }
  // The worker may touch the state.
  bool IsReadable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return still_ && IsFresh(); }
  // The program is to bring its copies up to date.
  bool Asks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return wanted_ && !IsFresh(); }
  void TakeAnswer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Offer(std::span<const std::int64_t> samples) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Withdraw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckMetric(std::int64_t metric) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Decide(Fate fate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Interrupted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Ending() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillMissing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::int64_t FirstPosition() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<OwnState> state_;
  const bool copied_;  // some of it
  const data::Batches batches_;
  const bool reproducible_;
  std::vector<float> own_gradients_;  // where they lie unless they were placed
  std::span<float> gradients_;

  mutable sync::Mutex mutex_;
  sync::Condition changed_;
  // Of the program.
  Held held_ ABSL_GUARDED_BY(mutex_) = Held::kNothing;
  bool still_ ABSL_GUARDED_BY(mutex_) = false;  // its state does not change
  bool fresh_ ABSL_GUARDED_BY(mutex_) = false;  // copies have been brought up to date since it did
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;  // the program is doing so: its next call says so
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<bool> ready_ ABSL_GUARDED_BY(mutex_);  // buckets
  std::vector<std::optional<double>> logged_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::optional<workload::Sum>> summed_ ABSL_GUARDED_BY(mutex_);
  workload::Sums sums_ ABSL_GUARDED_BY(mutex_);
  // Of the worker.
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;  // it waits in AwaitBoundary
  std::optional<Ticket> offer_ ABSL_GUARDED_BY(mutex_);
  Ticket present_ ABSL_GUARDED_BY(mutex_);                            // the step that is prepared
  std::int64_t handed_out_ ABSL_GUARDED_BY(mutex_) = 0;               // the highest step that was
  const workload::Client* client_ ABSL_GUARDED_BY(mutex_) = nullptr;  // while it waits in Compute
  std::optional<Fate> fate_ ABSL_GUARDED_BY(mutex_);
  double weight_ ABSL_GUARDED_BY(mutex_) = 0;  // of all members, in the step that counts
  workload::Values means_ ABSL_GUARDED_BY(mutex_) = {};
  bool replaced_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  membership::ViewNumber interrupted_below_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace starling::embed
