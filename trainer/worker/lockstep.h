// SPDX-License-Identifier: Apache-2.0
// Work in lockstep: every worker of the view holds the whole training state, computes its share of
// every batch, and sums it with the others' by an exchange.
//
// A completed reduction changes nothing by itself: the machine is asked first, and only its Apply
// touches the parameters. So a step that some of the members have completed when the view breaks is
// settled by the next view's sync round: who has applied it has the higher state, and the others
// copy.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/exchange/exchange.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/transport/group_mesh.h"
#include "trainer/worker/checkpointing.h"
#include "trainer/worker/step_computer.h"
#include "trainer/worker/training_state.h"
#include "trainer/worker/work_source.h"

namespace starling::worker {

// See WorkSource.
class Lockstep final : public WorkSource {
 public:
  // `context` outlives it. INVALID_ARGUMENT when the spec names what there is not.
  static absl::StatusOr<std::unique_ptr<WorkSource>> Create(const Context& context);
  // What goes through `exchange` lies on parameter servers in part, in these ranges. A batch has so
  // many portions (StepComputer's). The result is not written when the last step is settled, but
  // when Conclude is called.
  struct Beside {
    std::unique_ptr<exchange::Exchange> exchange;
    TrainingState::ServedRanges served;
    std::int64_t portions = 0;
  };
  static absl::StatusOr<std::unique_ptr<Lockstep>> Create(const Context& context, Beside servers);

  absl::Status Enter(const membership::View& view) override;
  void Leave() override;
  absl::Status Begin(const membership::Run& run) override;
  void OnSettings() override { checkpointing_.SetKeep(context_.progress.keep()); }
  absl::Status Work() override;
  absl::Status Do(const membership::Action& action) override;
  absl::StatusOr<absl::Duration> Idle() override;

  // Whether the last step is settled, and no view has begun since.
  bool over() const { return over_; }
  // Whether the state that training ended with was validated: the workload's parameters were
  // brought up to date for that.
  bool validated_at_end() const { return over_ && pending_->validated.has_value(); }
  // When it is over, one worker's: writes the result and a last checkpoint.
  absl::Status Conclude();
  // The same, if it is this one's to do here, and has not been done.
  absl::Status ConcludeIfDue();

 private:
  // A reduction's outcome, until the machine has answered.
  struct Pending {
    StepOutcome outcome;
    Course settled;  // of the state before, with its validation
    std::optional<Validated> validated;
    bool ends_training = false;
    bool skipped = false;  // TrainingState::Skip
  };

  Lockstep(const Context& context, std::unique_ptr<optimizer::Optimizer> rule, Beside servers);

  absl::Status On(const membership::FindCheckpoint& action);
  absl::Status On(const membership::SendSyncId& action);
  absl::Status On(const membership::StartFresh& action);
  absl::Status On(const membership::LoadCheckpoint& action);
  absl::Status On(const membership::ServeState& action);
  absl::Status On(const membership::CopyState& action);
  absl::Status On(const membership::AdoptCopy& action);
  absl::Status On(const membership::Apply& action);
  absl::Status On(const membership::Settled& action);
  absl::Status On(const membership::TakeCheckpoint& action);
  absl::Status On(const membership::CommitCheckpoint& action);
  absl::Status On(const membership::DropCheckpoint& action);
  absl::Status On(const membership::Pause& action);
  // All others are the loop's.
  template <typename OfLoop>
  absl::Status On(const OfLoop&) {
    return absl::OkStatus();
  }

  // Waits as long as the step is to be delayed, once for each step: not again when a view change
  // interrupts it. True if an action came first.
  bool WaitForPace();
  StepRequest MakeRequest();
  absl::Status Judge(const StepRequest& request, StepOutcome outcome);
  absl::Status AgreeOnFirstState();
  absl::Status ExchangeSyncIds(const membership::SyncId& mine);
  exchange::Fate FateIn(const membership::StateId& base) const;
  absl::Status OfStorage(const absl::Status& status);
  absl::Status SaveFinal();
  void SaveAgain();
  void OnCheckpoint(const checkpoint::WriteResult& result);
  std::vector<int> RanksOf(const std::vector<membership::MemberId>& members) const;
  // The ranks that send the base; of a ServeState or CopyState.
  template <typename Action>
  std::vector<int> HoldersOf(const Action& action) const;
  // The mesh of the workers; null when alone or closed, or when `view` is another.
  transport::Mesh* MeshOf(membership::ViewNumber view) const;
  bool IsFirst() const { return rank_ == 0; }
  void Deliver(const MemberShell::Event& event) { context_.shell.Deliver(event); }

  const Context& context_;
  OwnLoop ours_;   // where no program makes the steps
  OwnLoop& loop_;  // whoever makes them
  const std::unique_ptr<optimizer::Optimizer> rule_;
  const std::unique_ptr<exchange::Exchange> exchange_;
  TrainingState state_;
  StepComputer computer_;
  const bool concludes_;
  membership::View view_;                         // the newest that was entered
  membership::ReplicaGroup group_;                // of it, that this worker is in
  int rank_ = 0;                                  // in the group
  std::unique_ptr<transport::GroupMesh> beside_;  // the group's, where servers are in the view too
  bool over_ = false;
  bool concluded_ = false;
  membership::ViewNumber agreed_in_ = 0;  // on the first state
  membership::Run run_;
  std::optional<Pending> pending_;
  std::optional<membership::StateId> held_;        // before the view's sync round
  bool from_checkpoint_ = false;                   // what is staged
  exchange::Fate fate_ = exchange::Fate::kMissed;  // of the last step, once that is adopted
  std::optional<checkpoint::StateParts> staging_;  // a state that is copied or read, until adopted
  // The state that this process began with is lost, and another one is not whole yet.
  bool half_copied_ = false;
  std::int64_t tried_ = 0;  // the highest step that this worker has worked on
  std::int64_t paced_step_ = 0;
  net::Deadline paced_until_ = net::Deadline::Never();
  std::optional<membership::TakeCheckpoint> last_save_;
  std::atomic<bool> retry_save_{false};  // a checkpoint could not be written
  net::Deadline next_save_ = net::Deadline::After(absl::ZeroDuration());
  Checkpointing checkpointing_;  // last: its thread calls OnCheckpoint
};

}  // namespace starling::worker
