// SPDX-License-Identifier: Apache-2.0
// The worker's main loop: carries out what the membership machine asks for, and trains in between.
//
// Everything that changes the state happens here, on one thread: an update is computed and reduced,
// the machine is asked, and only if it answers Apply does the state change. Whatever goes wrong in
// a view ends that view for this worker; the next one starts with a sync round. To obey a new
// action: a Do() for it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "common/storage/blob_store.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/audit_log.h"
#include "trainer/membership/member.h"
#include "trainer/worker/checkpointing.h"
#include "trainer/worker/member_shell.h"
#include "trainer/worker/step_computer.h"
#include "trainer/worker/step_files.h"
#include "trainer/worker/stopwatch.h"
#include "trainer/worker/training_board.h"
#include "trainer/worker/training_state.h"
#include "trainer/worker/view_links.h"
#include "trainer/worker/worker_metrics.h"

namespace starling::worker {

// Confined to one thread, except RetrySave.
class StepLoop {
 public:
  struct Parts {
    const v1alpha1::TrainingJobSpec& spec;
    membership::MemberId self;
    std::string job_dir;
    std::map<std::string, std::string> model_metadata;
    MemberShell& shell;
    ViewLinks& links;
    TrainingState& state;
    StepComputer& computer;
    exchange::Exchange& exchange;  // the computer's
    workload::Workload& workload;
    Checkpointing& checkpointing;
    storage::BlobStore& storage;
    TrainingBoard& board;
    Stopwatch& stopwatch;
    StepFiles& step_files;
    WorkerMetrics& metrics;
    const clock::Clock& clock;
    std::function<void()> poke;                           // a report has news
    std::function<void(membership::ViewNumber)> on_view;  // a view's steps begin; may be empty
  };
  explicit StepLoop(Parts parts);

  // Until the machine says Exit (OK), or training cannot go on: the status says why, and the board
  // has it as the job's failure.
  absl::Status Run();

  // A final checkpoint could not be written: try again. Thread-safe.
  void RetrySave() { retry_save_ = true; }

 private:
  // A reduction's outcome, until the machine has answered.
  struct Pending {
    StepOutcome outcome;
    Course settled;  // of the state before, with its validation
    std::optional<Validated> validated;
    bool ends_training = false;
  };

  absl::Status Do(const membership::Fence& action);
  absl::Status Do(const membership::AbortView& action);
  absl::Status Do(const membership::OpenMesh& action);
  absl::Status Do(const membership::FindCheckpoint& action);
  absl::Status Do(const membership::SendSyncId& action);
  absl::Status Do(const membership::StartFresh& action);
  absl::Status Do(const membership::LoadCheckpoint& action);
  absl::Status Do(const membership::ServeState& action);
  absl::Status Do(const membership::CopyState& action);
  absl::Status Do(const membership::AdoptCopy& action);
  absl::Status Do(const membership::Run& action);
  absl::Status Do(const membership::Apply& action);
  absl::Status Do(const membership::Settled& action);
  absl::Status Do(const membership::ApplySettings& action);
  absl::Status Do(const membership::TakeCheckpoint& action);
  absl::Status Do(const membership::CommitCheckpoint& action);
  absl::Status Do(const membership::DropCheckpoint& action);
  absl::Status Do(const membership::Pause& action);
  absl::Status Do(const membership::SendReport& action);
  absl::Status Do(const membership::Exit& action);

  bool CanStep() const;
  absl::Status Step();
  // Waits as long as the step is to be delayed, once for each step: not again when a view change
  // interrupts it. True if an action came first.
  bool WaitForPace();
  StepRequest MakeRequest(int64_t total, bool settle_only);
  absl::Status Judge(const StepRequest& request, StepOutcome outcome);
  absl::Status AfterFailedStep(const absl::Status& status);
  absl::Status ExchangeSyncIds(const membership::SyncId& mine);
  exchange::Fate FateIn(const membership::StateId& base) const;
  void Broken(membership::ViewNumber view, const absl::Status& status);
  void TakeSettings(const membership::Settings& settings);
  void ReportProgress(const Course& course);
  void WriteAudit(int64_t settled_step);
  absl::Status FinishTraining();
  absl::Status SaveFinal();
  void SaveAgain();
  std::vector<int> RanksOf(const std::vector<membership::MemberId>& members) const;
  bool IsFirst() const { return rank_ == 0; }
  Names metrics() const { return parts_.workload.declaration().metrics; }
  void Deliver(const MemberShell::Event& event) { parts_.shell.Deliver(event); }

  Parts parts_;
  v1alpha1::Stop stop_;    // in force
  membership::View view_;  // the newest that was opened
  int rank_ = 0;
  std::optional<membership::Run> running_;
  std::optional<Pending> pending_;
  std::optional<membership::StateId> held_;        // before the view's sync round
  bool from_checkpoint_ = false;                   // what is staged
  exchange::Fate fate_ = exchange::Fate::kMissed;  // of the last step, once that is adopted
  std::optional<checkpoint::StateParts> staging_;  // a state that is copied or read, until adopted
  std::unique_ptr<data::AuditLog> audit_;
  int64_t paced_step_ = 0;
  net::Deadline paced_until_ = net::Deadline::Never();
  bool audit_failing_ = false;
  absl::Time started_ = absl::InfinitePast();  // of the first steps
  bool exiting_ = false;
  absl::Time view_ended_ = absl::InfinitePast();  // set while no step was made since
  absl::Time last_step_ = absl::InfinitePast();
  std::optional<membership::TakeCheckpoint> last_save_;
  std::atomic<bool> retry_save_{false};
};

}  // namespace starling::worker
