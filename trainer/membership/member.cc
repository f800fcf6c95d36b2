// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/member.h"

#include <algorithm>
#include <utility>

namespace starling::membership {
namespace {

// Sync ids of views that I have not installed: more than a few means that I am far behind, and the
// view that I do install in the end is the newest.
constexpr std::size_t kKeptFutureViews = 16;

// The number that all contributed; without the rule the smallest. 0 if there is none.
std::int64_t AgreedNumber(std::int64_t min, std::int64_t max, const Rules& rules) {
  if (!rules.min_equals_max) return min;
  return min == max ? min : 0;
}

}  // namespace

Actions Member::OnDirective(const Directive& directive) {
  Actions actions;
  const Session::Heard heard = session_.OnDirective(directive);
  if (heard == Session::Heard::kStale) return actions;
  if (heard == Session::Heard::kSuccessor) actions.push_back(SendReport{});
  if (!session_.exit().empty()) {
    actions.push_back(Exit{session_.exit()});
    return actions;
  }
  TakeSettings(directive.settings);
  wanted_turn_ = std::max(wanted_turn_, directive.checkpoint_turn);
  if (directive.view) OnView(*directive.view, actions);
  if (IsClient()) ObeyAsClient(actions);
  return actions;
}

bool Member::IsClient() const {
  return view() != nullptr && view()->Has(id()) && group() == nullptr;
}

// Nothing has to be agreed on where no replicated state depends on it.
void Member::ObeyAsClient(Actions& actions) {
  committed_turn_ = wanted_turn_;
  if (wanted_settings_.empty()) return;
  agreed_.settings = wanted_settings_.rbegin()->second;
  wanted_settings_.clear();
  if (phase_ == Phase::kRun) actions.push_back(ApplySettings{agreed_.settings});
}

void Member::TakeSettings(const Settings& settings) {
  if (settings.generation > agreed_.settings.generation) {
    wanted_settings_[settings.generation] = settings;
  }
}

void Member::OnView(const View& view, Actions& actions) {
  if (!session_.MayEnter(view)) return;
  if (!view.at_boundary) {
    Install(view, /*planned=*/false, actions);
    return;
  }
  const View* installed = session_.view();
  const bool in_from = installed != nullptr && installed->number == view.from && group() != nullptr;
  if (in_from) {
    const bool running = phase_ == Phase::kSync || phase_ == Phase::kCopy || phase_ == Phase::kRun;
    if (running && candidates_.emplace(view.number, view).second) actions.push_back(SendReport{});
  } else if (view.Has(id())) {
    Install(view, /*planned=*/false, actions);  // I join
  }
}

void Member::Install(const View& view, bool planned, Actions& actions) {
  if (rules().halt_first || planned) actions.push_back(Fence{view.number, planned});
  DropUnsettledSnapshot(actions);
  previous_ = session_.view() != nullptr ? number() : 0;
  session_.Enter(view);
  candidates_.clear();
  sync_ids_.erase(sync_ids_.begin(), sync_ids_.lower_bound(view.number));
  base_step_ = -1;
  stepped_ = false;
  stopping_ = false;
  if (!view.Has(id())) {
    if (planned || phase_ == Phase::kLinger) {
      phase_ = Phase::kLinger;
      actions.push_back(Pause{Phase::kLinger});
    } else {
      phase_ = Phase::kOut;
    }
    actions.push_back(SendReport{});
    return;
  }
  phase_ = Phase::kSync;
  actions.push_back(SendReport{});
  actions.push_back(OpenMesh{view});
  if (IsClient()) return;
  if (group()->restore) {
    actions.push_back(FindCheckpoint{view.number});
  } else {
    Offer(std::nullopt, actions);
  }
}

void Member::DropUnsettledSnapshot(Actions& actions) {
  if (!snapshot_ || snapshot_->settled) return;
  actions.push_back(DropCheckpoint{snapshot_->id});
  snapshot_.reset();
}

Actions Member::OnEntered(ViewNumber view) {
  Actions actions;
  if (phase_ != Phase::kSync || number() != view || !IsClient()) return actions;
  phase_ = Phase::kRun;
  actions.push_back(Run{StateId{view, 0}, /*settle_only=*/false, agreed_.settings});
  actions.push_back(SendReport{});
  return actions;
}

Actions Member::OnCheckpointFound(ViewNumber view, const std::optional<CheckpointOffer>& offer) {
  Actions actions;
  if (phase_ != Phase::kSync || number() != view || IsClient()) return actions;
  Offer(offer, actions);
  return actions;
}

void Member::Offer(const std::optional<CheckpointOffer>& offer, Actions& actions) {
  SyncId mine;
  mine.view = number();
  mine.member = id();
  mine.state = state_;
  mine.agreed = agreed_;
  mine.checkpoint = offer;
  sync_ids_[mine.view][mine.member] = mine;
  actions.push_back(SendSyncId{std::move(mine)});
  TrySync(actions);
}

Actions Member::OnSyncId(const SyncId& sync_id) {
  Actions actions;
  if (sync_id.view < fence()) return actions;
  sync_ids_[sync_id.view].emplace(sync_id.member, sync_id);
  if (sync_ids_.size() > kKeptFutureViews) sync_ids_.erase(std::next(sync_ids_.begin()));
  TrySync(actions);
  return actions;
}

void Member::TrySync(Actions& actions) {
  if (phase_ != Phase::kSync || IsClient()) return;
  const std::map<MemberId, SyncId>& sync_ids = sync_ids_[number()];
  for (const MemberId& member : group()->members) {
    if (!sync_ids.contains(member)) return;
  }
  decision_ = DecideSync(*group(), sync_ids, rules());
  if (decision_.fenced_by != 0) {
    Halt(decision_.fenced_by, actions);
  } else if (decision_.missing_witness != 0) {
    phase_ = Phase::kLost;
    actions.push_back(SendReport{});
  } else if (!decision_.base) {
    actions.push_back(StartFresh{number()});
    StartRun(actions);
  } else if (!Contains(decision_.holders, id())) {
    phase_ = Phase::kCopy;
    actions.push_back(CopyState{number(), *decision_.base, decision_.holders, decision_.copiers});
    actions.push_back(SendReport{});
  } else if (decision_.from_checkpoint) {
    phase_ = Phase::kCopy;
    actions.push_back(LoadCheckpoint{number(), *decision_.base});
    actions.push_back(SendReport{});
  } else {
    StartRun(actions);
  }
}

void Member::Halt(std::uint64_t fenced_by, Actions& actions) {
  actions.push_back(AbortView{number()});
  session_.RefuseBelow(fenced_by);
  phase_ = Phase::kOut;
  actions.push_back(SendReport{});
}

Actions Member::OnCopied(ViewNumber view) {
  Actions actions;
  const bool copying =
      phase_ == Phase::kCopy && number() == view && !Contains(decision_.holders, id());
  if (!copying) return actions;
  actions.push_back(AdoptCopy{StateId{view, decision_.base->step}});
  StartRun(actions);
  return actions;
}

Actions Member::OnLoaded(ViewNumber view) {
  Actions actions;
  const bool loading =
      phase_ == Phase::kCopy && number() == view && Contains(decision_.holders, id());
  if (!loading) return actions;
  actions.push_back(AdoptCopy{StateId{view, decision_.base->step}});
  StartRun(actions);
  return actions;
}

void Member::StartRun(Actions& actions) {
  const std::int64_t step = decision_.base ? decision_.base->step : 0;
  state_ = StateId{number(), step};
  agreed_ = decision_.agreed;
  wanted_settings_.erase(wanted_settings_.begin(),
                         wanted_settings_.upper_bound(agreed_.settings.generation));
  settled_step_ = decision_.from_checkpoint ? step : std::min(settled_step_, step);
  phase_ = Phase::kRun;
  final_committed_ = false;
  if (Contains(decision_.holders, id()) && !decision_.copiers.empty()) {
    actions.push_back(ServeState{number(), *decision_.base, decision_.holders, decision_.copiers});
  }
  base_step_ = step;
  if (Halted()) Snap(/*settled=*/false, actions);
  actions.push_back(Run{*state_, Halted(), agreed_.settings});
  actions.push_back(SendReport{});
}

ControlWord Member::NextControlWord() {
  ControlWord word;
  if (!candidates_.empty()) word.candidate = static_cast<std::int64_t>(candidates_.rbegin()->first);
  word.checkpoint_turn = std::max(wanted_turn_, agreed_.checkpoint_turn);
  word.settings_generation =
      wanted_settings_.empty() ? agreed_.settings.generation : wanted_settings_.rbegin()->first;
  word.stop = session_.leaving() ? 1 : 0;
  return word;
}

bool Member::Accepts(const Reduction& reduction) const {
  if (!state_ || reduction.step != state_->step + 1) return false;
  if (phase_ == Phase::kRun && reduction.view == number()) return true;
  return !rules().halt_first && reduction.view == previous_ && reduction.view != 0;
}

Actions Member::OnReduced(const Reduction& reduction) {
  Actions actions;
  if (!Accepts(reduction)) return actions;
  const StateId settled = *state_;
  const bool was_halted = Halted();
  if (!reduction.empty) {
    ++state_->step;
    actions.push_back(Apply{*state_});
  }
  settled_step_ = settled.step;
  actions.push_back(Settled{settled});
  // A snapshot is of the state that the next reduction settles: it is taken where a step ends or a
  // view begins, and one that is not settled by then goes with its view.
  if (snapshot_) snapshot_->settled = true;
  CommitIfDue(actions);
  if (phase_ != Phase::kRun) return actions;  // only where a rule is switched off

  ActOnSettings(
      AgreedNumber(reduction.min.settings_generation, reduction.max.settings_generation, rules()),
      actions);
  ActOnTurnAndStop(reduction, actions);
  if (reduction.empty && (Halted() || !was_halted)) {
    phase_ = Phase::kDone;
    actions.push_back(Pause{Phase::kDone});
    actions.push_back(SendReport{});
  } else if (Halted() != was_halted) {
    if (Halted()) Snap(/*settled=*/false, actions);
    actions.push_back(Run{*state_, Halted(), agreed_.settings});
  }
  if (!std::exchange(stepped_, true)) actions.push_back(SendReport{});
  ActOnCandidate(static_cast<ViewNumber>(
                     AgreedNumber(reduction.min.candidate, reduction.max.candidate, rules())),
                 actions);
  return actions;
}

void Member::ActOnSettings(std::int64_t generation, Actions& actions) {
  const auto wanted = wanted_settings_.find(generation);  // all of them are above what is agreed on
  if (wanted == wanted_settings_.end()) return;
  agreed_.settings = wanted->second;
  wanted_settings_.erase(wanted_settings_.begin(), std::next(wanted));
  actions.push_back(ApplySettings{agreed_.settings});
}

void Member::ActOnTurnAndStop(const Reduction& reduction, Actions& actions) {
  const std::int64_t turn =
      AgreedNumber(reduction.min.checkpoint_turn, reduction.max.checkpoint_turn, rules());
  if (AgreedNumber(reduction.min.stop, reduction.max.stop, rules()) == 1) stopping_ = true;
  if (turn <= agreed_.checkpoint_turn) return;
  agreed_.checkpoint_turn = turn;
  if (!Halted()) Snap(/*settled=*/reduction.empty, actions);
}

void Member::Snap(bool settled, Actions& actions) {
  if (snapshot_ && !snapshot_->committing) {
    actions.push_back(DropCheckpoint{snapshot_->id});
  }
  snapshot_ = Snapshot{agreed_.checkpoint_turn, *state_, false, settled, false};
  actions.push_back(TakeCheckpoint{*state_, agreed_, Halted()});
}

// Candidates are above the fence: a view that is installed takes all of them away.
void Member::ActOnCandidate(ViewNumber number, Actions& actions) {
  const auto candidate = candidates_.find(number);
  if (candidate != candidates_.end()) {
    const View view = candidate->second;
    Install(view, /*planned=*/true, actions);
  } else if (!rules().min_equals_max && number > fence()) {
    session_.Fence(number);
    phase_ = Phase::kLinger;
  }
}

Actions Member::OnBroken(ViewNumber view, const std::vector<MemberId>& unreachable) {
  Actions actions;
  const bool active = phase_ == Phase::kSync || phase_ == Phase::kCopy || phase_ == Phase::kRun;
  if (!active || number() != view) return actions;
  phase_ = Phase::kAborted;
  session_.SetUnreachable(unreachable);
  actions.push_back(AbortView{view});
  actions.push_back(SendReport{});
  return actions;
}

Actions Member::OnCheckpointWritten(const StateId& id) {
  Actions actions;
  if (snapshot_ && snapshot_->id == id) snapshot_->written = true;
  CommitIfDue(actions);
  return actions;
}

void Member::CommitIfDue(Actions& actions) {
  if (!snapshot_ || snapshot_->committing || !snapshot_->written) return;
  if (!snapshot_->settled && rules().checkpoint_only_settled) return;
  snapshot_->committing = true;
  actions.push_back(CommitCheckpoint{snapshot_->id});
}

Actions Member::OnCheckpointCommitted(const StateId& id) {
  Actions actions;
  if (!snapshot_ || !snapshot_->committing || snapshot_->id != id) return actions;
  if (Halted() && snapshot_->id == *state_) final_committed_ = true;
  committed_turn_ = std::max(committed_turn_, snapshot_->turn);
  snapshot_.reset();
  actions.push_back(SendReport{});
  ExitIfStopped(actions);
  return actions;
}

void Member::ExitIfStopped(Actions& actions) {
  if (session_.leaving() && Stopped()) actions.push_back(Exit{"asked to stop; the state is saved"});
}

Actions Member::OnTerminate() {
  Actions actions;
  if (!session_.Leave()) return actions;
  actions.push_back(SendReport{});
  const bool saved = phase_ == Phase::kDone && (!Halted() || final_committed_);
  const bool useless = phase_ == Phase::kOut && !state_;
  if (saved || useless) actions.push_back(Exit{"asked to stop; nobody needs me"});
  return actions;
}

Actions Member::OnGraceOver() {
  session_.End("the grace period is over");
  return {Exit{session_.exit()}};
}

Report Member::MakeReport() const {
  Report report = session_.MakeReport();
  if (!candidates_.empty()) report.candidate = candidates_.rbegin()->second;
  report.state = state_;
  report.phase = phase_;
  report.settled_step = settled_step_;
  report.training = training_;
  report.settings_generation = agreed_.settings.generation;
  report.checkpoint_turn = committed_turn_;
  report.base_step = base_step_;
  report.stepped = stepped_;
  report.stopped = agreed_.settings.halt && Stopped();
  return report;
}

}  // namespace starling::membership
