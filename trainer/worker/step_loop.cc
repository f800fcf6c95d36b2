// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/step_loop.h"

#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/membership/convert.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/worker/result.h"
#include "trainer/worker/state_copy.h"

namespace starling::worker {
namespace {

// How long this worker waits for peers before it calls the view broken by itself. Normally the
// coordinator ends a view long before, when it finds a member silent.
constexpr absl::Duration kOpenPatience = absl::Seconds(30);
constexpr absl::Duration kStepPatience = absl::Minutes(10);
constexpr absl::Duration kSavePatience = absl::Minutes(1);
constexpr absl::Duration kSaveRetryEvery = absl::Seconds(1);

absl::Duration StepDelay(const v1alpha1::TrainingJobSpec& spec) {
  const google::protobuf::Duration& delay = spec.experiment().step_delay();
  return absl::Seconds(delay.seconds()) + absl::Nanoseconds(delay.nanos());
}

std::vector<int64_t> Pack(const membership::ControlWord& word) {
  return {word.candidate, word.checkpoint_turn, word.settings_generation, word.stop};
}

membership::ControlWord Unpack(const std::vector<int64_t>& words) {
  return {.candidate = words[0],
          .checkpoint_turn = words[1],
          .settings_generation = words[2],
          .stop = words[3]};
}

}  // namespace

StepLoop::StepLoop(Parts parts) : parts_(std::move(parts)), stop_(parts_.spec.stop()) {}

absl::Status StepLoop::Run() {
  while (!exiting_) {
    const bool can_step = CanStep();
    if (!can_step && retry_save_) {
      if (!parts_.shell.WaitForAction(kSaveRetryEvery)) SaveAgain();
    }
    std::optional<membership::Action> action = parts_.shell.Next(!can_step && !retry_save_);
    absl::Status status;
    if (action) {
      status = std::visit([this](const auto& what) { return Do(what); }, *action);
    } else if (can_step) {
      status = Step();
    }
    if (!status.ok()) {
      parts_.board.SetFailure(std::string(status.message()));
      parts_.links.Close();
      return status;
    }
  }
  parts_.links.Close();
  return absl::OkStatus();
}

bool StepLoop::CanStep() const {
  if (!running_) return false;
  return parts_.shell.Ask([this](const membership::Member& machine) {
    return machine.phase() == membership::Phase::kRun && machine.view() != nullptr &&
           machine.view()->number == running_->id.view;
  });
}

// One step.

StepRequest StepLoop::MakeRequest(int64_t total, bool settle_only) {
  const int64_t step = parts_.state.course().step;
  StepRequest request;
  request.step = step + 1;
  request.empty = settle_only || step >= total;
  request.validate =
      !settle_only && parts_.computer.has_validation() &&
      ValidationDue(step, total, parts_.spec.validation(), parts_.computer.batches());
  request.mesh = parts_.links.mesh();
  request.control = Pack(parts_.shell.NextControlWord());
  request.deadline = net::Deadline::After(kStepPatience + 2 * StepDelay(parts_.spec));
  return request;
}

absl::Status StepLoop::Step() {
  const int64_t total = TotalSteps(stop_, parts_.computer.batches());
  const bool over = running_->settle_only || parts_.state.course().step >= total;
  if (!over && WaitForPace()) return absl::OkStatus();

  const StepRequest request = MakeRequest(total, running_->settle_only);
  absl::StatusOr<StepOutcome> outcome = parts_.computer.Run(request);
  if (!outcome.ok()) return AfterFailedStep(outcome.status());
  return Judge(request, *std::move(outcome));
}

bool StepLoop::WaitForPace() {
  const absl::Duration delay = StepDelay(parts_.spec);
  if (delay <= absl::ZeroDuration()) return false;
  const int64_t step = parts_.state.course().step + 1;
  if (paced_step_ != step) {
    paced_step_ = step;
    paced_until_ = net::Deadline::After(delay);
  }
  return parts_.shell.WaitForAction(paced_until_.Remaining());
}

absl::Status StepLoop::AfterFailedStep(const absl::Status& status) {
  if (parts_.computer.compute_failed() || parts_.links.mesh() == nullptr) return status;
  Broken(running_->id.view, status);
  return absl::OkStatus();
}

absl::Status StepLoop::Judge(const StepRequest& request, StepOutcome outcome) {
  Pending pending{.outcome = std::move(outcome),
                  .settled = parts_.state.course(),
                  .validated = std::nullopt,
                  .ends_training = request.empty && !running_->settle_only};
  if (pending.outcome.validation) {
    pending.validated = AfterValidation(pending.settled, *pending.outcome.validation);
    pending.settled = pending.validated->course;
    if (EndsTraining(pending.settled, stop_, parts_.spec.validation(), metrics())) {
      pending.ends_training = true;
    }
  }
  const bool empty = request.empty || pending.ends_training;
  if (!empty && !pending.outcome.finite) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step ", request.step, ": the loss or a gradient is not a finite number (loss ",
        pending.outcome.training[0],
        "): training has diverged; lower "
        "spec.optimizer's learningRate or normalize the data"));
  }
  const membership::Reduction reduction{.view = running_->id.view,
                                        .step = request.step,
                                        .min = Unpack(pending.outcome.control_min),
                                        .max = Unpack(pending.outcome.control_max),
                                        .empty = empty};
  pending_ = std::move(pending);
  Deliver([&](membership::Member& machine) { return machine.OnReduced(reduction); });
  return absl::OkStatus();
}

absl::Status StepLoop::Do(const membership::Apply& action) {
  const int64_t batch = pending_->outcome.batch;
  if (pending_->validated) parts_.state.TakeValidation(*pending_->validated);
  parts_.stopwatch.Enter(Activity::kCompute);
  parts_.state.Apply(optimizer::LearningRate(parts_.spec.optimizer(), action.id.step), batch,
                     pending_->outcome.training, parts_.workload.gradients());
  parts_.exchange.Settle(exchange::Fate::kApplied);
  parts_.stopwatch.Enter(Activity::kIdle);
  parts_.step_files.Completed(action.id.step);

  const absl::Time now = parts_.clock.Now();
  parts_.metrics.steps.Increment();
  parts_.metrics.samples.Increment(static_cast<double>(batch));
  parts_.metrics.step.Set(static_cast<double>(action.id.step));
  parts_.metrics.loss.Set(pending_->outcome.training[0]);
  if (last_step_ != absl::InfinitePast()) {
    parts_.metrics.step_seconds.Observe(absl::ToDoubleSeconds(now - last_step_));
  }
  last_step_ = now;
  if (view_ended_ != absl::InfinitePast()) {
    const double seconds = absl::ToDoubleSeconds(now - view_ended_);
    parts_.metrics.recovery_seconds.Observe(seconds);
    log::Info("first step of the view",
              {{"step", action.id.step}, {"secondsSinceLastView", seconds}});
    view_ended_ = absl::InfinitePast();
  }
  return absl::OkStatus();
}

absl::Status StepLoop::Do(const membership::Settled& action) {
  parts_.step_files.Settled(action.id.step);
  ReportProgress(pending_->settled);
  WriteAudit(action.id.step);
  return absl::OkStatus();
}

void StepLoop::ReportProgress(const Course& course) {
  const data::Batches& batches = parts_.computer.batches();
  v1alpha1::Progress progress;
  progress.set_step(course.step);
  progress.set_epoch(course.step == 0 ? 1 : batches.At(course.step).epoch);
  progress.set_samples(batches.SamplesUpTo(course.step));
  if (course.step > 0) progress.set_loss(course.training[0]);
  for (const auto& [name, value] : Metrics(course, metrics(), /*best=*/false)) {
    (*progress.mutable_metrics())[name] = value;
  }
  const int64_t total = TotalSteps(stop_, batches);
  if (total < std::numeric_limits<int64_t>::max()) progress.set_total_steps(total);
  progress.set_workers(static_cast<int64_t>(view_.members.size()));
  parts_.board.SetProgress(std::move(progress));
}

void StepLoop::WriteAudit(int64_t settled_step) {
  if (audit_ == nullptr || settled_step < 1) return;
  const absl::Status status = audit_->AppendUpTo(settled_step);
  // Nothing is lost: the next call writes what is missing.
  if (!status.ok() && !audit_failing_) {
    log::Warning("the audit cannot be written", {{"why", std::string(status.message())}});
  }
  audit_failing_ = !status.ok();
}

// Views.

absl::Status StepLoop::Do(const membership::Fence& action) {
  // Planned: slower peers may still be receiving our last bytes.
  parts_.links.Close();
  parts_.links.Fence(action.view);
  return absl::OkStatus();
}

absl::Status StepLoop::Do(const membership::AbortView& action) {
  if (view_.number != action.view) return absl::OkStatus();
  if (view_ended_ == absl::InfinitePast()) view_ended_ = parts_.clock.Now();
  parts_.stopwatch.Enter(Activity::kRecovery);
  parts_.links.Close();
  running_.reset();
  return absl::OkStatus();
}

void StepLoop::Broken(membership::ViewNumber view, const absl::Status& status) {
  const std::vector<membership::MemberId> unreachable = parts_.links.Unreachable(status);
  log::Info("the view is broken here", {{"view", membership::EpochOf(view)},
                                        {"why", std::string(status.message())},
                                        {"unreachable", unreachable.size()}});
  Deliver([&](membership::Member& machine) { return machine.OnBroken(view, unreachable); });
}

absl::Status StepLoop::Do(const membership::OpenMesh& action) {
  parts_.stopwatch.Enter(Activity::kRecovery);
  if (view_.number != 0 && view_ended_ == absl::InfinitePast()) view_ended_ = parts_.clock.Now();
  if (!action.view.at_boundary && view_.number != 0) parts_.metrics.recoveries.Increment();
  running_.reset();
  staging_.reset();
  audit_.reset();
  view_ = action.view;
  rank_ = view_.RankOf(parts_.self);
  const auto mesh = parts_.links.Open(view_, parts_.self, net::Deadline::After(kOpenPatience));
  if (!mesh.ok()) Broken(view_.number, mesh.status());
  return absl::OkStatus();
}

absl::Status StepLoop::ExchangeSyncIds(const membership::SyncId& mine) {
  transport::Mesh* mesh = parts_.links.mesh();
  if (mesh == nullptr) return absl::OkStatus();
  constexpr transport::Tag kTag = {.step = 0, .channel = collectives::kSyncChannel};
  constexpr size_t kLimit = 4 << 20;
  const net::Deadline deadline = net::Deadline::After(kStepPatience);
  const std::string encoded = membership::EncodeSyncId(mine);
  for (int peer = 0; peer < mesh->size(); ++peer) {
    if (peer != mesh->rank()) mesh->PostSend(peer, kTag, bytes::View(encoded));
  }
  for (int peer = 0; peer < mesh->size(); ++peer) {
    if (peer == mesh->rank()) continue;
    ASSIGN_OR_RETURN(const std::string message, mesh->ReceiveMessage(peer, kTag, kLimit, deadline));
    ASSIGN_OR_RETURN(const membership::SyncId theirs, membership::DecodeSyncId(message));
    Deliver([&](membership::Member& machine) { return machine.OnSyncId(theirs); });
  }
  return mesh->WaitAll(deadline);
}

absl::Status StepLoop::Do(const membership::SendSyncId& action) {
  if (action.sync_id.view != view_.number) return absl::OkStatus();
  held_ = action.sync_id.state;
  const absl::Status status = ExchangeSyncIds(action.sync_id);
  if (!status.ok()) Broken(view_.number, status);
  return absl::OkStatus();
}

std::vector<int> StepLoop::RanksOf(const std::vector<membership::MemberId>& members) const {
  std::vector<int> ranks;
  ranks.reserve(members.size());
  for (const membership::MemberId& member : members) ranks.push_back(view_.RankOf(member));
  return ranks;
}

absl::Status StepLoop::Do(const membership::ServeState& action) {
  transport::Mesh* mesh = parts_.links.mesh();
  if (action.view != view_.number || mesh == nullptr) return absl::OkStatus();
  const std::vector<int> holders = RanksOf(action.holders);
  const auto mine = std::find(holders.begin(), holders.end(), rank_) - holders.begin();
  const auto segments = parts_.state.parts().Replicated();
  const absl::Status status =
      ServeState(*mesh, segments, static_cast<size_t>(mine), holders.size(),
                 RanksOf(action.copiers), net::Deadline::After(kStepPatience));
  if (!status.ok()) Broken(action.view, status);
  return absl::OkStatus();
}

// What became of the step that this worker last computed, now that all go on from `base`. In one
// view members differ by one step at most, so a base that is ahead in the same view is the result
// of that step, with this worker's part in it.
exchange::Fate StepLoop::FateIn(const membership::StateId& base) const {
  if (!held_ || held_->view != base.view) return exchange::Fate::kMissed;
  return base.step > held_->step ? exchange::Fate::kApplied : exchange::Fate::kDropped;
}

absl::Status StepLoop::Do(const membership::CopyState& action) {
  transport::Mesh* mesh = parts_.links.mesh();
  if (action.view != view_.number || mesh == nullptr) return absl::OkStatus();
  staging_ = parts_.state.parts().NewStaging();
  const auto segments = staging_->Replicated();
  const absl::Status status =
      CopyState(*mesh, segments, RanksOf(action.holders), net::Deadline::After(kStepPatience));
  if (!status.ok()) {
    staging_.reset();
    Broken(action.view, status);
    return absl::OkStatus();
  }
  fate_ = FateIn(action.base);
  from_checkpoint_ = false;
  Deliver([&](membership::Member& machine) { return machine.OnCopied(action.view); });
  return absl::OkStatus();
}

absl::Status StepLoop::Do(const membership::AdoptCopy&) {
  // Not before: where the view has ended meanwhile the old state stays, with what is pending.
  parts_.exchange.Settle(fate_);
  if (staging_) parts_.state.parts().Adopt(*staging_);
  staging_.reset();
  parts_.exchange.Adopted(from_checkpoint_);
  return absl::OkStatus();
}

absl::Status StepLoop::Do(const membership::StartFresh&) {
  parts_.exchange.Settle(exchange::Fate::kMissed);
  log::Info("training starts from the seed", {{"seed", parts_.spec.seed()}});
  return absl::OkStatus();  // the workload began so, and nobody without a state has applied
                            // anything
}

absl::Status StepLoop::Do(const membership::FindCheckpoint& action) {
  parts_.stopwatch.Enter(Activity::kCheckpoint);
  ASSIGN_OR_RETURN(const std::optional<membership::CheckpointOffer> offer,
                   parts_.checkpointing.FindNewest());
  parts_.stopwatch.Enter(Activity::kRecovery);
  Deliver(
      [&](membership::Member& machine) { return machine.OnCheckpointFound(action.view, offer); });
  return absl::OkStatus();
}

absl::Status StepLoop::Do(const membership::LoadCheckpoint& action) {
  if (action.view != view_.number) return absl::OkStatus();
  ASSIGN_OR_RETURN(staging_,
                   parts_.checkpointing.Load(parts_.state.parts(), action.name, IsFirst()));
  log::Info("training goes on from a checkpoint",
            {{"checkpoint", checkpoint::NameOf(ToCheckpointId(action.name))}});
  fate_ = exchange::Fate::kMissed;  // what it kept belongs to steps that are undone
  from_checkpoint_ = true;
  Deliver([&](membership::Member& machine) { return machine.OnLoaded(action.view); });
  return absl::OkStatus();
}

absl::Status StepLoop::Do(const membership::Run& action) {
  running_ = action;
  if (started_ == absl::InfinitePast()) started_ = parts_.clock.Now();
  TakeSettings(action.settings);
  parts_.stopwatch.Enter(Activity::kIdle);
  const data::Batches& batches = parts_.computer.batches();
  if (parts_.spec.dataset().audit_use() && IsFirst() && audit_ == nullptr) {
    ASSIGN_OR_RETURN(audit_, data::AuditLog::Open(parts_.job_dir, batches));
    // Lines after this state speak of steps that a restore has undone.
    RETURN_IF_ERROR(audit_->TruncateAfter(action.id.step));
  }
  parts_.board.StartPace(batches.SamplesUpTo(action.id.step));
  parts_.metrics.view.Set(static_cast<double>(membership::EpochOf(action.id.view)));
  parts_.metrics.members.Set(static_cast<double>(view_.members.size()));
  parts_.metrics.step.Set(static_cast<double>(action.id.step));
  log::Info("steps begin", {{"view", membership::EpochOf(action.id.view)},
                            {"incarnation", membership::IncarnationOf(action.id.view)},
                            {"members", view_.members.size()},
                            {"rank", rank_},
                            {"step", action.id.step},
                            {"settleOnly", action.settle_only}});
  if (parts_.on_view) parts_.on_view(action.id.view);
  return absl::OkStatus();
}

absl::Status StepLoop::Do(const membership::ApplySettings& action) {
  TakeSettings(action.settings);
  return absl::OkStatus();
}

void StepLoop::TakeSettings(const membership::Settings& settings) {
  const absl::StatusOr<v1alpha1::Settings> values = membership::ParseSettings(settings);
  if (!values.ok()) {
    log::Warning("settings that cannot be read are left aside",
                 {{"generation", settings.generation}});
    return;
  }
  stop_ = values->has_stop() ? values->stop() : parts_.spec.stop();
  const v1alpha1::Checkpoint& checkpoint =
      values->has_checkpoint() ? values->checkpoint() : parts_.spec.checkpoint();
  parts_.checkpointing.SetKeep(std::max<int64_t>(1, checkpoint.keep()));
}

// Checkpoints and the end.

absl::Status StepLoop::Do(const membership::TakeCheckpoint& action) {
  if (IsFirst()) {
    parts_.stopwatch.Enter(Activity::kCheckpoint);
    // The last one is worth waiting for; a regular one has a successor.
    const bool begun =
        parts_.checkpointing.Begin(parts_.state.parts(), action.id, action.agreed,
                                   action.last ? kSavePatience : absl::ZeroDuration());
    parts_.stopwatch.Enter(Activity::kIdle);
    last_save_ = action;
    if (!begun) {
      log::Warning("checkpoint left out: the one before is still being written",
                   {{"step", action.id.step}});
      if (!action.last) return absl::OkStatus();
      retry_save_ = true;
    }
  }
  Deliver([&](membership::Member& machine) { return machine.OnCheckpointWritten(action.id); });
  return absl::OkStatus();
}

absl::Status StepLoop::Do(const membership::CommitCheckpoint& action) {
  if (parts_.checkpointing.Commit(action.id)) return absl::OkStatus();
  if (IsFirst() && last_save_ && last_save_->id == action.id) return absl::OkStatus();  // retried
  Deliver([&](membership::Member& machine) { return machine.OnCheckpointCommitted(action.id); });
  return absl::OkStatus();
}

absl::Status StepLoop::Do(const membership::DropCheckpoint& action) {
  parts_.checkpointing.Drop(action.id);
  if (last_save_ && last_save_->id == action.id) last_save_.reset();
  return absl::OkStatus();
}

void StepLoop::SaveAgain() {
  retry_save_ = false;
  const bool still_here =
      last_save_ && IsFirst() && parts_.shell.Ask([this](const membership::Member& machine) {
        return machine.phase() == membership::Phase::kDone && machine.state() == last_save_->id;
      });
  if (!still_here) return;
  if (parts_.checkpointing.Begin(parts_.state.parts(), last_save_->id, last_save_->agreed,
                                 kSavePatience)) {
    parts_.checkpointing.Commit(last_save_->id);
  } else {
    retry_save_ = true;
  }
}

absl::Status StepLoop::Do(const membership::Pause&) {
  parts_.stopwatch.Enter(Activity::kIdle);
  running_.reset();
  const bool done = parts_.shell.Ask([](const membership::Member& machine) {
    return machine.phase() == membership::Phase::kDone;
  });
  if (!done || !pending_ || !pending_->ends_training || !IsFirst()) return absl::OkStatus();
  return FinishTraining();
}

absl::Status StepLoop::FinishTraining() {
  ASSIGN_OR_RETURN(v1alpha1::Result result,
                   WriteResult(parts_.storage, parts_.state, pending_->settled, stop_,
                               parts_.computer.batches(), parts_.model_metadata));
  result.set_seconds(absl::ToDoubleSeconds(parts_.clock.Now() - started_));
  parts_.stopwatch.Enter(Activity::kCheckpoint);
  if (const absl::Status saved = SaveFinal(); !saved.ok()) {
    // The model is there; only going on from its end would need the checkpoint.
    log::Warning("the last checkpoint could not be written",
                 {{"why", std::string(saved.message())}});
  }
  parts_.stopwatch.Enter(Activity::kIdle);
  log::Info("training has ended", {{"steps", result.steps()}, {"model", result.model().sha256()}});
  parts_.board.SetResult(result);
  parts_.poke();
  return absl::OkStatus();
}

absl::Status StepLoop::SaveFinal() {
  const auto [id, agreed] = parts_.shell.Ask([](const membership::Member& machine) {
    return std::pair(*machine.state(), machine.agreed());
  });
  if (!parts_.checkpointing.Begin(parts_.state.parts(), id, agreed, kSavePatience)) {
    return absl::DeadlineExceededError("the checkpoint before is still being written");
  }
  parts_.checkpointing.Commit(id);
  if (!parts_.checkpointing.Flush(kSavePatience)) {
    return absl::DeadlineExceededError("it took more than a minute");
  }
  return absl::OkStatus();
}

absl::Status StepLoop::Do(const membership::SendReport&) { return absl::OkStatus(); }

absl::Status StepLoop::Do(const membership::Exit& action) {
  log::Info("the worker ends", {{"why", action.reason}});
  exiting_ = true;
  return absl::OkStatus();
}

}  // namespace starling::worker
