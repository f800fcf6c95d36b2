// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/lockstep.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "trainer/membership/convert.h"
#include "trainer/worker/make_exchange.h"
#include "trainer/worker/result.h"
#include "trainer/worker/state_copy.h"

namespace starling::worker {
namespace {

// How long this worker waits for peers before it calls the view broken by itself. Normally the
// coordinator ends a view long before, when it finds a member silent.
constexpr absl::Duration kStepTimeout = absl::Minutes(10);
constexpr absl::Duration kSaveTimeout = absl::Minutes(1);
constexpr absl::Duration kSaveRetryEvery = absl::Seconds(1);

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

absl::StatusOr<std::unique_ptr<WorkSource>> Lockstep::Create(const Context& context) {
  ASSIGN_OR_RETURN(std::unique_ptr<exchange::Exchange> exchange,
                   MakeExchange(context.spec(), context.declared()));
  return Create(context, {.exchange = std::move(exchange), .served = {}});
}

absl::StatusOr<std::unique_ptr<Lockstep>> Lockstep::Create(const Context& context, Beside servers) {
  ASSIGN_OR_RETURN(std::unique_ptr<optimizer::Optimizer> rule,
                   optimizer::MakeOptimizer(context.spec().optimizer()));
  return std::unique_ptr<Lockstep>(new Lockstep(context, std::move(rule), std::move(servers)));
}

Lockstep::Lockstep(const Context& context, std::unique_ptr<optimizer::Optimizer> rule,
                   Beside servers)
    : context_(context),
      loop_(context.parts.own_loop == nullptr ? ours_ : *context.parts.own_loop),
      rule_(std::move(rule)),
      exchange_(std::move(servers.exchange)),
      state_(context.parts.workload, *rule_, context.spec().validation().keep_best(),
             servers.served,
             {.spec = context.spec().numerics(),
              .seed = static_cast<std::uint64_t>(context.spec().seed())}),
      computer_({.spec = context.spec(),
                 .workload = context.parts.workload,
                 .batches = context.batches,
                 .exchange = *exchange_,
                 .stopwatch = context.stopwatch,
                 .portions = servers.portions,
                 .recorder = context.parts.recorder}),
      concludes_(servers.served.empty()),
      checkpointing_(checkpoint::CheckpointStore(context.parts.storage, checkpoint::kCheckpoints),
                     context.progress.keep(), {{kDataDigest, context.declared().data_digest}},
                     [this](const checkpoint::WriteResult& result) { OnCheckpoint(result); }) {
  loop_.Register(state_.parts());
  if (timeline::Recorder* recorder = context.parts.recorder; recorder != nullptr) {
    recorder->InLockstep();
    exchange_->RecordTo(*recorder);
  }
  const std::span<float> residual = exchange_->residual();
  if (residual.empty()) return;
  state_.parts().Add("exchange/residual", {static_cast<std::int64_t>(residual.size())}, residual,
                     checkpoint::Scope::kOwn);
}

absl::Status Lockstep::Do(const membership::Action& action) {
  return std::visit([this](const auto& what) { return On(what); }, action);
}

// One step.

StepRequest Lockstep::MakeRequest() {
  const std::int64_t step = state_.course().step;
  const std::int64_t total = context_.progress.Total();
  StepRequest request;
  request.step = step + 1;
  request.empty = run_.settle_only || step >= total;
  // Where work begins from checkpoints, or from nothing, nobody holds what was begun before.
  request.interrupted = step == run_.id.step && !view_.at_boundary && !group_.restore;
  request.last = request.step == total;
  request.validate =
      !run_.settle_only && computer_.has_validation() &&
      ValidationDue(state_.course(), total, context_.spec().validation(), context_.batches);
  request.portions = {rank_, rank_ + 1};
  request.of = static_cast<std::int64_t>(group_.members.size());
  request.loss_scale = state_.numerics().loss_scale();
  request.control = Pack(context_.shell.NextControlWord());
  request.deadline = loop_.present()
                         ? net::Deadline::Never()
                         : net::Deadline::After(kStepTimeout + 2 * context_.step_delay());
  return request;
}

absl::Status Lockstep::Work() {
  const bool over = run_.settle_only || state_.course().step >= context_.progress.Total();
  if (!over && WaitForPace()) return absl::OkStatus();

  if (!over) RETURN_IF_ERROR(AgreeOnFirstState());
  const StepRequest request = MakeRequest();
  if (const absl::Status ready = loop_.Prepare(run_.id.view, request); !ready.ok()) {
    return exchange::ViewEnded(ready);
  }
  const bool repeated = !request.empty && request.step <= tried_;
  context_.stopwatch.CountAs(repeated ? std::optional(Activity::kRepeated) : std::nullopt);
  if (!request.empty) tried_ = std::max(tried_, request.step);
  ASSIGN_OR_RETURN(StepOutcome outcome, computer_.Run(request));
  context_.metrics.exchange_seconds.Observe(absl::ToDoubleSeconds(outcome.exchange));
  return Judge(request, std::move(outcome));
}

bool Lockstep::WaitForPace() {
  const absl::Duration delay = context_.step_delay();
  if (delay <= absl::ZeroDuration()) return false;
  const std::int64_t step = state_.course().step + 1;
  if (paced_step_ != step) {
    paced_step_ = step;
    paced_until_ = net::Deadline::After(delay);
  }
  return context_.shell.WaitForAction(paced_until_.Remaining());
}

absl::Status Lockstep::Judge(const StepRequest& request, StepOutcome outcome) {
  Pending pending{.outcome = std::move(outcome),
                  .settled = state_.course(),
                  .validated = std::nullopt,
                  .ends_training = request.empty && !run_.settle_only};
  if (pending.outcome.validation) {
    pending.validated = AfterValidation(pending.settled, *pending.outcome.validation,
                                        context_.progress.stop(), context_.declared().metrics);
    pending.settled = pending.validated->course;
    if (EndsTraining(pending.settled, context_.progress.stop(), context_.spec().validation(),
                     context_.declared().metrics)) {
      pending.ends_training = true;
    }
  }
  const bool empty = request.empty || pending.ends_training;
  // Of the sum, so all decide alike.
  pending.skipped = !empty && !pending.outcome.finite && !loop_.present();
  if (pending.skipped && !state_.numerics().CanSkip()) {
    return Diverged(request.step, pending.outcome);
  }
  const membership::Reduction reduction{.view = run_.id.view,
                                        .step = request.step,
                                        .min = Unpack(pending.outcome.control_min),
                                        .max = Unpack(pending.outcome.control_max),
                                        .empty = empty};
  pending_ = std::move(pending);
  Deliver([&](membership::Member& machine) { return machine.OnReduced(reduction); });
  return absl::OkStatus();
}

absl::Status Lockstep::On(const membership::Apply& action) {
  const std::int64_t batch = pending_->outcome.batch;
  const std::int64_t own = pending_->outcome.own;
  if (pending_->validated) state_.TakeValidation(*pending_->validated);
  context_.stopwatch.Enter(Activity::kOptimizer);
  if (pending_->skipped) {
    state_.Skip(pending_->outcome.training);
  } else {
    state_.Apply(optimizer::LearningRate(context_.spec().optimizer(), action.id.step), batch,
                 pending_->outcome.training, context_.parts.workload.gradients(),
                 context_.spec().optimizer().clip_norm());
    loop_.Applied(action.id.step, pending_->outcome);
  }
  exchange_->Settle(pending_->skipped ? exchange::Fate::kDropped : exchange::Fate::kApplied);
  context_.stopwatch.Enter(Activity::kIdle);
  context_.metrics.step.Set(static_cast<double>(action.id.step));
  const double loss = pending_->outcome.training[0];
  context_.progress.Completed(action.id.step, own,
                              std::isfinite(loss) ? std::optional(loss) : std::nullopt);
  return absl::OkStatus();
}

absl::Status Lockstep::On(const membership::Settled& action) {
  context_.progress.Exchanged(exchange_->volume());
  context_.progress.Computed(state_.numerics().Told());
  context_.progress.Settled(action.id.step, pending_->settled);
  return absl::OkStatus();
}

// Views.

absl::Status Lockstep::Enter(const membership::View& view) {
  const membership::ReplicaGroup* group = view.GroupOf(context_.config.self);
  if (group == nullptr) return absl::InternalError("this worker is in no group of the view");
  staging_.reset();
  over_ = false;
  computer_.ForgetLap();
  view_ = view;
  group_ = *group;
  rank_ = group_.RankOf(context_.config.self);
  beside_.reset();
  if (group_.members.size() > 1 && group_.members.size() < view.members.size()) {
    std::vector<int> ranks;
    for (const membership::MemberId& member : group_.members) ranks.push_back(view.RankOf(member));
    beside_ = std::make_unique<transport::GroupMesh>(*context_.links.mesh(), std::move(ranks));
  }
  return exchange_->Enter(view, MeshOf(view.number));
}

void Lockstep::Leave() {
  over_ = false;
  loop_.Dropped();
  exchange_->Leave();
  beside_.reset();
}

transport::Mesh* Lockstep::MeshOf(membership::ViewNumber view) const {
  if (view != view_.number || group_.members.size() < 2) return nullptr;
  return beside_ != nullptr ? beside_.get() : context_.links.mesh();
}

absl::Status Lockstep::ExchangeSyncIds(const membership::SyncId& mine) {
  transport::Mesh* mesh = MeshOf(mine.view);
  if (mesh == nullptr) return absl::OkStatus();
  constexpr transport::Tag kTag = {.step = 0, .channel = collectives::kSyncChannel};
  constexpr std::size_t kLimit = 4 << 20;
  const net::Deadline deadline = net::Deadline::After(kStepTimeout);
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

absl::Status Lockstep::On(const membership::SendSyncId& action) {
  if (action.sync_id.view != view_.number) return absl::OkStatus();
  held_ = action.sync_id.state;
  const absl::Status status = ExchangeSyncIds(action.sync_id);
  return status.ok() ? status : exchange::ViewEnded(status);
}

// Programs may begin differently, until AgreeOnFirstState.
template <typename Action>
std::vector<int> Lockstep::HoldersOf(const Action& action) const {
  std::vector<int> ranks = RanksOf(action.holders);
  if (loop_.present() && action.base.step == 0) ranks.resize(1);
  return ranks;
}

// What a program begins with is the first worker's: seeds and versions may differ. In each view
// until the first step counts, since the one before may have broken when some had it.
absl::Status Lockstep::AgreeOnFirstState() {
  if (!loop_.present() || state_.course().step > 0 || agreed_in_ == view_.number) {
    return absl::OkStatus();
  }
  agreed_in_ = view_.number;
  transport::Mesh* mesh = MeshOf(view_.number);
  if (mesh == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(loop_.AwaitBoundary());
  checkpoint::StateParts staged = state_.parts().NewStaging();
  const absl::Status status = SpreadState(*mesh, state_.parts().Replicated(), staged.Replicated(),
                                          net::Deadline::After(kStepTimeout));
  if (!status.ok()) return exchange::ViewEnded(status);
  if (IsFirst()) return absl::OkStatus();
  state_.parts().Adopt(staged);
  loop_.Replaced();
  return absl::OkStatus();
}

std::vector<int> Lockstep::RanksOf(const std::vector<membership::MemberId>& members) const {
  std::vector<int> ranks;
  ranks.reserve(members.size());
  for (const membership::MemberId& member : members) ranks.push_back(group_.RankOf(member));
  return ranks;
}

absl::Status Lockstep::On(const membership::ServeState& action) {
  transport::Mesh* mesh = MeshOf(action.view);
  if (mesh == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(loop_.AwaitBoundary());
  const std::vector<int> holders = HoldersOf(action);
  const auto mine = std::find(holders.begin(), holders.end(), rank_) - holders.begin();
  if (mine == std::ssize(holders)) return absl::OkStatus();
  const auto segments = state_.parts().Replicated();
  const absl::Status status =
      ServeState(*mesh, segments, static_cast<std::size_t>(mine), holders.size(),
                 RanksOf(action.copiers), net::Deadline::After(kStepTimeout));
  return status.ok() ? status : exchange::ViewEnded(status);
}

// What became of the step that this worker last computed, now that all go on from `base`. In one
// view members differ by one step at most, so a base that is ahead in the same view is the result
// of that step, with this worker's part in it.
exchange::Fate Lockstep::FateIn(const membership::StateId& base) const {
  if (!held_ || held_->view != base.view) return exchange::Fate::kMissed;
  return base.step > held_->step ? exchange::Fate::kApplied : exchange::Fate::kDropped;
}

absl::Status Lockstep::On(const membership::CopyState& action) {
  transport::Mesh* mesh = MeshOf(action.view);
  if (mesh == nullptr) return absl::OkStatus();
  // Who has a state keeps it until the copy is whole, for the view may end before. Who has none
  // receives where the state belongs: memory beside it, and copying it from there, would cost all
  // others of the view time, for they wait.
  if (held_) {
    staging_ = state_.parts().NewStaging();
  } else {
    RETURN_IF_ERROR(loop_.AwaitBoundary());
    half_copied_ = true;
  }
  const auto segments = (staging_ ? *staging_ : state_.parts()).Replicated();
  const absl::Status status =
      CopyState(*mesh, segments, HoldersOf(action), net::Deadline::After(kStepTimeout));
  if (!status.ok()) {
    staging_.reset();
    return exchange::ViewEnded(status);
  }
  fate_ = FateIn(action.base);
  from_checkpoint_ = false;
  Deliver([&](membership::Member& machine) { return machine.OnCopied(action.view); });
  return absl::OkStatus();
}

absl::Status Lockstep::On(const membership::AdoptCopy&) {
  RETURN_IF_ERROR(loop_.AwaitBoundary());
  // Not before: where the view has ended meanwhile the old state stays, with what is pending.
  exchange_->Settle(fate_);
  if (staging_) state_.parts().Adopt(*staging_);
  staging_.reset();
  half_copied_ = false;
  loop_.Replaced();
  exchange_->Adopted(from_checkpoint_);
  return absl::OkStatus();
}

absl::Status Lockstep::On(const membership::StartFresh&) {
  if (half_copied_) {
    return absl::FailedPreconditionError(
        "all who had a state are gone, and no checkpoint is there: training starts from the seed. "
        "What this process began with was overwritten by a copy that they did not finish, so it "
        "is to be started again");
  }
  exchange_->Settle(exchange::Fate::kMissed);
  log::Info("training starts from the seed", {{"seed", context_.spec().seed()}});
  return absl::OkStatus();  // the workload began so, and nobody without a state has applied
                            // anything
}

// A storage that does not answer now is asked again in the next view, a moment later.
absl::Status Lockstep::OfStorage(const absl::Status& status) {
  const bool later = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                     absl::IsResourceExhausted(status);
  if (!later) return status;
  log::Warning("checkpoints cannot be read now", {{"why", std::string(status.message())}});
  (void)context_.shell.WaitForAction(kSaveRetryEvery);
  return absl::UnavailableError(status.message());
}

absl::Status Lockstep::On(const membership::FindCheckpoint& action) {
  const absl::StatusOr<std::optional<membership::CheckpointOffer>> offer =
      checkpointing_.FindNewest();
  if (!offer.ok()) return OfStorage(offer.status());
  Deliver(
      [&](membership::Member& machine) { return machine.OnCheckpointFound(action.view, *offer); });
  return absl::OkStatus();
}

absl::Status Lockstep::On(const membership::LoadCheckpoint& action) {
  if (action.view != view_.number) return absl::OkStatus();
  absl::StatusOr<checkpoint::StateParts> loaded =
      checkpointing_.Load(state_.parts(), action.name, IsFirst());
  if (!loaded.ok()) return OfStorage(loaded.status());
  staging_ = *std::move(loaded);
  log::Info("training goes on from a checkpoint",
            {{"checkpoint", checkpoint::NameOf(ToCheckpointId(action.name))}});
  fate_ = exchange::Fate::kMissed;  // what it kept belongs to steps that are undone
  from_checkpoint_ = true;
  Deliver([&](membership::Member& machine) { return machine.OnLoaded(action.view); });
  return absl::OkStatus();
}

absl::Status Lockstep::Begin(const membership::Run& run) {
  run_ = run;
  context_.progress.ViewBegins(view_, run.id.step, /*undone=*/true, IsFirst());
  context_.progress.TravelBy(exchange_->paths());
  return absl::OkStatus();
}

// Checkpoints and the end.

absl::Status Lockstep::On(const membership::TakeCheckpoint& action) {
  if (IsFirst()) {
    RETURN_IF_ERROR(loop_.AwaitBoundary());
    context_.stopwatch.Enter(Activity::kCheckpoint);
    // The last one is worth waiting for; a regular one has a successor.
    const bool begun = checkpointing_.Begin(state_.parts(), action.id, action.agreed,
                                            action.last ? kSaveTimeout : absl::ZeroDuration());
    context_.stopwatch.Enter(Activity::kIdle);
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

absl::Status Lockstep::On(const membership::CommitCheckpoint& action) {
  if (checkpointing_.Commit(action.id)) return absl::OkStatus();
  if (IsFirst() && last_save_ && last_save_->id == action.id) return absl::OkStatus();  // retried
  Deliver([&](membership::Member& machine) { return machine.OnCheckpointCommitted(action.id); });
  return absl::OkStatus();
}

absl::Status Lockstep::On(const membership::DropCheckpoint& action) {
  checkpointing_.Drop(action.id);
  if (last_save_ && last_save_->id == action.id) last_save_.reset();
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> Lockstep::Idle() {
  RETURN_IF_ERROR(ConcludeIfDue());
  if (!retry_save_) return absl::InfiniteDuration();
  if (next_save_.Expired()) {
    RETURN_IF_ERROR(loop_.AwaitBoundary());
    SaveAgain();
    next_save_ = net::Deadline::After(kSaveRetryEvery);
  }
  return retry_save_ ? next_save_.Remaining() : absl::InfiniteDuration();
}

void Lockstep::SaveAgain() {
  retry_save_ = false;
  const bool still_here =
      last_save_ && IsFirst() && context_.shell.Ask([this](const membership::Member& machine) {
        return machine.phase() == membership::Phase::kDone && machine.state() == last_save_->id;
      });
  if (!still_here) return;
  if (checkpointing_.Begin(state_.parts(), last_save_->id, last_save_->agreed, kSaveTimeout)) {
    checkpointing_.Commit(last_save_->id);
  } else {
    retry_save_ = true;
  }
}

// On the writer's thread.
void Lockstep::OnCheckpoint(const checkpoint::WriteResult& result) {
  if (!result.status.ok()) {
    log::Error("checkpoint not written", {{"checkpoint", checkpoint::NameOf(result.id)},
                                          {"why", std::string(result.status.message())}});
    context_.metrics.checkpoints_failed.Increment();
    retry_save_ = true;
    context_.shell.Nudge();
    return;
  }
  if (timeline::Recorder* recorder = context_.parts.recorder; timeline::IsOn(recorder)) {
    const absl::Time now = recorder->Now();
    recorder->Add({.track = v1alpha1::TraceEvent::CHECKPOINT,
                   .name = "write checkpoint",
                   .begin = now - result.elapsed,
                   .end = now,
                   .step = result.id.step});
  }
  log::Info("checkpoint written", {{"checkpoint", checkpoint::NameOf(result.id)},
                                   {"seconds", absl::ToDoubleSeconds(result.elapsed)}});
  context_.metrics.checkpoints_written.Increment();
  context_.metrics.checkpoint_seconds.Observe(absl::ToDoubleSeconds(result.elapsed));
  context_.board.SetCheckpoint(ToStatus(result, context_.parts.clock));
  Deliver([id = FromCheckpointId(result.id)](membership::Member& machine) {
    return machine.OnCheckpointCommitted(id);
  });
}

absl::Status Lockstep::On(const membership::Pause&) {
  context_.stopwatch.CountAs(std::nullopt);
  const bool done = context_.shell.Ask([](const membership::Member& machine) {
    return machine.phase() == membership::Phase::kDone;
  });
  over_ = done && pending_ && pending_->ends_training;
  concluded_ = false;
  if (over_) loop_.Over();
  return ConcludeIfDue();
}

absl::Status Lockstep::ConcludeIfDue() {
  const bool mine = over_ && concludes_ && IsFirst();
  if (!mine || concluded_ || !loop_.Finished()) return absl::OkStatus();
  concluded_ = true;
  return Conclude();
}

absl::Status Lockstep::Conclude() {
  RETURN_IF_ERROR(loop_.AwaitBoundary());
  const auto of_loop = loop_.Model();
  ASSIGN_OR_RETURN(
      v1alpha1::Result result,
      of_loop
          ? WriteResult(context_.parts.storage, *of_loop, /*best=*/false, pending_->settled,
                        context_.declared().metrics, context_.progress.stop(), context_.batches,
                        context_.declared().model_metadata)
          : WriteResult(context_.parts.storage, state_, pending_->settled, context_.progress.stop(),
                        context_.batches, context_.declared().model_metadata));
  result.set_seconds(context_.progress.Seconds());
  context_.stopwatch.Enter(Activity::kCheckpoint);
  if (const absl::Status saved = SaveFinal(); !saved.ok()) {
    // The model is there; only going on from its end would need the checkpoint.
    log::Warning("the last checkpoint could not be written",
                 {{"why", std::string(saved.message())}});
  }
  context_.stopwatch.Enter(Activity::kIdle);
  context_.progress.Conclude(result);
  return absl::OkStatus();
}

absl::Status Lockstep::SaveFinal() {
  const auto [id, agreed] = context_.shell.Ask([](const membership::Member& machine) {
    return std::pair(*machine.state(), machine.agreed());
  });
  if (!checkpointing_.Begin(state_.parts(), id, agreed, kSaveTimeout)) {
    return absl::DeadlineExceededError("the checkpoint before is still being written");
  }
  checkpointing_.Commit(id);
  if (!checkpointing_.Flush(kSaveTimeout)) {
    return absl::DeadlineExceededError("it took more than a minute");
  }
  return absl::OkStatus();
}

}  // namespace starling::worker
