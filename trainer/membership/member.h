// SPDX-License-Identifier: Apache-2.0
// A worker's side of the membership protocol (rules W1 to W9 of docs/design/protocol.md), as a pure
// machine: events go in, actions come out, and nothing here knows of threads, clocks or sockets. It
// is the same object in a worker and in the deterministic simulation.
//
// A worker that is in a replica group of the view holds that group's state: it starts the view with
// a sync round, and steps are applied as the machine says. A worker that is in no group is a client
// of parameter servers: it only enters the view (OpenMesh, then OnEntered), obeys settings when it
// hears them, and runs until the next view.
//
// How a training loop uses it: hold one Member under a mutex; feed it every directive, sync id,
// completed reduction and broken link; carry out the actions it returns IN ORDER on the loop's own
// thread, except Fence and SendReport, which whoever received them carries out AT ONCE (that is how
// a new view stops a collective that blocks the loop). An action that names a view is void if the
// machine has left that view meanwhile; the machine ignores late events by itself, so a shell needs
// no checks of its own, but it must ask (OnReduced, OnCopied) BEFORE it changes the parameters and
// change them only if the answer holds Apply or AdoptCopy. Loop:
//
//   word = member.NextControlWord(); reduce gradients and min/max of the word in view v;
//   actions = member.OnReduced({v, step, min, max, empty})   // Apply first, then the rest
//   while member.phase() == kRun and no action said otherwise: the next step.
//
// To add an event: a method here, its rule in member.cc, its line in the design page.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trainer/membership/session.h"
#include "trainer/membership/sync_round.h"
#include "trainer/membership/types.h"

namespace starling::membership {

// Stop applying at once; cancel every collective, copy and connection of views below `view`; refuse
// them from now on. Carried out before anything is said to anyone. `planned`: the old view ended at
// a boundary and this member needs nothing more of it, but slower peers may still be receiving its
// last bytes: flush and close in order instead of cancelling.
struct Fence {
  ViewNumber view = 0;
  bool planned = false;
};
// Cancel every collective, copy and connection of this view; the state stays as it is.
struct AbortView {
  ViewNumber view = 0;
};
// Connect to the members of the view (accept from them): the sync round begins, or, for whoever is
// in no group, OnEntered answers when it can work. Failure: OnBroken.
struct OpenMesh {
  View view;
};
// Find the newest checkpoint that can be read and verified; answer with OnCheckpointFound. One
// whose name has a higher incarnation than `view` must be offered too: the machine halts on it.
struct FindCheckpoint {
  ViewNumber view = 0;
};
// Send to every other member of the view, once the mesh is open.
struct SendSyncId {
  SyncId sync_id;
};
// Make the first state, step 0, from the job's seed.
struct StartFresh {
  ViewNumber view = 0;
};
// Load this checkpoint, verify it, then OnLoaded (or OnBroken). All `holders` do the same.
struct LoadCheckpoint {
  ViewNumber view = 0;
  StateId name;
};
// I hold the base: send my share (my index in `holders`) to each of `copiers`, then go on.
struct ServeState {
  ViewNumber view = 0;
  StateId base;
  std::vector<MemberId> holders;
  std::vector<MemberId> copiers;
};
// Receive the base from `holders`, each its share, into staging; verify; then OnCopied.
struct CopyState {
  ViewNumber view = 0;
  StateId base;
  std::vector<MemberId> holders;
  std::vector<MemberId> copiers;
};
// The staged copy (or checkpoint) is the state now: swap it in.
struct AdoptCopy {
  StateId id;
};
// Step on from `id` in this view; the newest Run holds. `settle_only`: training is halted; make one
// empty reduction (as after the last step). `settings` are those in force (`values` empty: those of
// the job file).
struct Run {
  StateId id;
  bool settle_only = false;
  Settings settings;
};
// Apply the reduced update; the state is `id` from now on.
struct Apply {
  StateId id;
};
// The state `id` is settled: everyone had it. Progress, audit lines and results may speak of it.
struct Settled {
  StateId id;
};
// These settings are in force from the next step on.
struct ApplySettings {
  Settings settings;
};
// Snapshot the state `id` now and write it in the background WITHOUT committing; `agreed` belongs
// into it. Then OnCheckpointWritten(id). Members that write nothing answer at once.
struct TakeCheckpoint {
  StateId id;
  Agreed agreed;
  bool last = false;  // before a halt: nothing follows that could stand for it
};
// The snapshot is settled and written: commit it (rename), then OnCheckpointCommitted(id). Prune
// older ones.
struct CommitCheckpoint {
  StateId id;
};
// The snapshot will never be committed: delete what was written.
struct DropCheckpoint {
  StateId id;
};
// No more steps in this view: training is over, halted or I am drained. Keep connections open and
// keep reporting; a new view may still ask for my state.
struct Pause {
  Phase phase = Phase::kDone;  // kDone or kLinger
};
// Send a report now.
struct SendReport {};
// Leave the process with status 0. `reason` is for the log.
struct Exit {
  std::string reason;
};

using Action =
    std::variant<Fence, AbortView, OpenMesh, FindCheckpoint, SendSyncId, StartFresh, LoadCheckpoint,
                 ServeState, CopyState, AdoptCopy, Run, Apply, Settled, ApplySettings,
                 TakeCheckpoint, CommitCheckpoint, DropCheckpoint, Pause, SendReport, Exit>;
using Actions = std::vector<Action>;

// A completed reduction: all buckets and the control word of it.
struct Reduction {
  ViewNumber view = 0;
  std::int64_t step = 0;  // the step it makes: id.step + 1, also when it is empty
  ControlWord min;
  ControlWord max;
  bool empty = false;  // nothing to apply: it only settles id.step (training is over or halted)
};

// Thread-compatible.
class Member {
 public:
  using Options = Session::Options;

  explicit Member(Options options) : session_(std::move(options)) {}

  // From the coordinator's stream. A directive of a lower incarnation than one seen is ignored;
  // answer it with a report and hang up if highest_incarnation() is above the directive's.
  Actions OnDirective(const Directive& directive);
  // Answers FindCheckpoint.
  Actions OnCheckpointFound(ViewNumber view, const std::optional<CheckpointOffer>& offer);
  // Answers OpenMesh, of whoever is in no group: the servers have welcomed this client.
  Actions OnEntered(ViewNumber view);
  // From a peer in the sync round. Of a view above mine it is kept until I install that view.
  Actions OnSyncId(const SyncId& sync_id);
  // CopyState is whole and verified in staging.
  Actions OnCopied(ViewNumber view);
  // LoadCheckpoint is whole and verified in staging.
  Actions OnLoaded(ViewNumber view);
  // A reduction completed. Change the parameters only if the answer begins with Apply.
  Actions OnReduced(const Reduction& reduction);
  // A link of this view broke, a deadline passed, a copy or load failed.
  Actions OnBroken(ViewNumber view, const std::vector<MemberId>& unreachable);
  // The snapshot of this state is written (or needs no writing here).
  Actions OnCheckpointWritten(const StateId& id);
  // CommitCheckpoint is carried out.
  Actions OnCheckpointCommitted(const StateId& id);
  // SIGTERM or a notice: leave gracefully.
  Actions OnTerminate();
  // The grace period is over.
  Actions OnGraceOver();

  // What goes into the next reduction. Call it once for each.
  ControlWord NextControlWord();

  // Rides on every report.
  void SetTraining(Training training) { training_ = std::move(training); }

  Report MakeReport() const;
  Phase phase() const { return phase_; }
  const std::optional<StateId>& state() const { return state_; }
  // The installed view, or null.
  const View* view() const { return session_.view(); }
  std::uint64_t highest_incarnation() const { return session_.highest_incarnation(); }
  ViewNumber fence() const { return session_.fence(); }
  bool leaving() const { return session_.leaving(); }
  const Agreed& agreed() const { return agreed_; }

 private:
  struct Snapshot {
    std::int64_t turn = 0;
    StateId id;
    bool written = false;
    bool settled = false;
    bool committing = false;
  };

  const MemberId& id() const { return session_.id(); }
  const Rules& rules() const { return session_.rules(); }
  // Of the installed view, which there must be: its number, and the group that this worker is in.
  ViewNumber number() const { return session_.view()->number; }
  const ReplicaGroup* group() const { return session_.view()->GroupOf(id()); }
  // In the installed view, and in none of its groups.
  bool IsClient() const;
  void TakeSettings(const Settings& settings);
  void ObeyAsClient(Actions& actions);
  void OnView(const View& view, Actions& actions);
  void Install(const View& view, bool planned, Actions& actions);
  void DropUnsettledSnapshot(Actions& actions);
  void Offer(const std::optional<CheckpointOffer>& offer, Actions& actions);
  void TrySync(Actions& actions);
  void Halt(std::uint64_t fenced_by, Actions& actions);
  void StartRun(Actions& actions);
  bool Accepts(const Reduction& reduction) const;
  void ActOnSettings(std::int64_t generation, Actions& actions);
  void ActOnTurnAndStop(const Reduction& reduction, Actions& actions);
  void ActOnCandidate(ViewNumber number, Actions& actions);
  void Snap(bool settled, Actions& actions);
  void CommitIfDue(Actions& actions);
  void ExitIfStopped(Actions& actions);
  bool Halted() const { return agreed_.settings.halt || stopping_; }
  bool Stopped() const { return phase_ == Phase::kDone && Halted() && final_committed_; }

  Session session_;
  std::map<ViewNumber, View> candidates_;  // prepared in the installed view
  std::optional<StateId> state_;
  Agreed agreed_;
  Phase phase_ = Phase::kOut;
  std::int64_t settled_step_ = -1;

  std::map<ViewNumber, std::map<MemberId, SyncId>> sync_ids_;  // of the installed and later views
  SyncDecision decision_;                                      // of the installed view
  ViewNumber previous_ = 0;  // the view before; only looked at where a rule is switched off

  std::optional<Snapshot> snapshot_;
  std::int64_t committed_turn_ = 0;
  bool final_committed_ = false;  // the checkpoint of the halt is committed

  std::map<std::int64_t, Settings> wanted_settings_;  // not yet agreed on, by generation
  std::int64_t wanted_turn_ = 0;
  std::int64_t base_step_ = -1;  // where this view's sync round ended
  bool stepped_ = false;         // has completed a reduction in this view
  bool stopping_ = false;        // all members of this view leave
  Training training_;
};

}  // namespace starling::membership
