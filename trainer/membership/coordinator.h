// SPDX-License-Identifier: Apache-2.0
// The coordinator as a pure machine: it is told what the controller wants, what the members report
// and which of them answer, and holds a directive for every pod and a report for the controller.
// All that it knows is soft: its members know it too, and a successor rebuilds it from their
// reports.
//
// Every event method brings the directives and the report up to date before it returns; the shell
// compares directives_version() and report_version() with what it sent last. Time is the shell's:
// monotonic, any origin. One pod has one member process at a time; a later start replaces it.
//
// Here is what every kind of job shares; each rule of docs/design/protocol.md with its place:
//
//   C0 patience         EnoughToBegin(): the first view waits a moment for the rest
//   C3 release          Release(): whoever is not needed any more may go
//   C4 take-over        TakeOver(): nothing is published until the whole roster was heard
//   C5 assumed ended    NoteWitnessMissing(): the silent count as ended after too long a time
//   C6 blame            EvictMostBlamed(): after two views in a row that broke by blame alone
//   G8 late return      MayReturn(): who was given up waits until the others have synced
//   checkpoint rounds   rounds_
//
// What a kind decides for itself is where its replica groups lie and when a view is due: see
// PeerCoordinator (one group, of all workers) and parameter_server::SlotCoordinator (one for each
// shard). To add one: derive from this, and name it where the program chooses
// (trainer/coordinator/main.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/checkpoint_rounds.h"
#include "trainer/membership/failure_detector.h"
#include "trainer/membership/group_history.h"
#include "trainer/membership/summary.h"
#include "trainer/membership/types.h"

namespace starling::membership {

// Why somebody who reports is not admitted yet, for people.
inline constexpr const char* kReturning =
    "it was silent too long and counts as ended; it is taken back when the others have a view "
    "without it";

// Thread-compatible.
class Coordinator {
 public:
  virtual ~Coordinator() = default;

  // Events.
  void OnGrant(const Grant& grant, absl::Time now);
  void OnDesired(const Desired& desired, absl::Time now);
  void OnConnected(const std::string& pod_uid, absl::Time now);
  // The stream broke; whether the process is gone is not known yet.
  void OnDisconnected(const std::string& pod_uid, absl::Time now);
  // A new dial was refused: no process listens there. It counts as silent immediately.
  void OnRefused(const std::string& pod_uid, absl::Time now);
  void OnReport(const std::string& pod_uid, const Report& report, absl::Time now);
  // Timeouts and checkpoint rounds; every 50 ms or so.
  void OnTick(absl::Time now);

  // Whom the shell dials, by pod UID. Empty before the grant.
  std::map<std::string, Dial> PodsToDial() const { return detector_.PodsToDial(); }
  // What to tell the member process of this pod.
  Directive DirectiveFor(const std::string& pod_uid) const;
  Summary MakeSummary(absl::Time now) const;

  // The controller has the result.
  bool finished() const { return detector_.finished(); }
  // The job has ended, and of its pods nobody is left who would have to be told.
  bool AllGone() const { return detector_.AllGone(); }
  std::uint64_t directives_version() const { return directives_version_; }
  std::uint64_t report_version() const { return report_version_; }
  // A member has heard of a later coordinator: this one publishes nothing any more.
  bool superseded() const { return detector_.superseded(); }
  const std::set<std::string>& assumed_terminated() const { return detector_.assumed_terminated(); }

 protected:
  // Pods of other roles are nobody here. `settled`: see CheckpointRounds.
  Coordinator(CoordinatorOptions options, std::set<std::string> roles, std::int64_t settled);

  // What a kind of job decides for itself. ------------------------------------------------------

  // A report counts. Answers whether its process holds a replicated state.
  virtual bool Learn(const Report& report, absl::Time now) = 0;
  // The roster was heard, and something is wanted: what is to be done?
  virtual void Decide(absl::Time now) = 0;
  // The newest view that was published, and the newest that took effect; null: there is none.
  virtual const View* Newest() const = 0;
  virtual const View* Current() const { return Newest(); }
  // The current view runs, and nothing of it is still being copied.
  virtual bool Synced() const = 0;
  // All is saved where the job was halted.
  virtual bool Stopped() const = 0;
  virtual void FillTraining(Summary& summary) const = 0;
  // Of a directive, for a process if there is one: Directive.parameter_server.
  virtual std::string PartFor(const MemberId* /*id*/) const { return ""; }
  // Whether this holds for the history of each replica group.
  virtual bool EveryGroup(const std::function<bool(const GroupHistory&)>& holds) const = 0;
  virtual void OnTakenOver() {}
  virtual void OnPodsChanged() {}

  // What all kinds share. -----------------------------------------------------------------------

  Liveness LivenessOf(const MemberId& id, absl::Time now) const {
    return detector_.LivenessOf(id, taken_over_, now);
  }
  bool Halted() const { return detector_.desired() && detector_.desired()->settings.halt; }
  absl::Duration CheckpointInterval() const {
    return absl::Milliseconds(detector_.desired()->checkpoint_interval_ms);
  }
  void Changed() { ++directives_version_; }
  // How many of a role are there, must be, and may be hoped for.
  struct Headcount {
    const char* who;
    std::int64_t there;
    std::int64_t least;
    std::int64_t hoped;
  };
  // Whether these are enough to begin with, and the rest had time to come too.
  bool EnoughToBegin(std::initializer_list<Headcount> counts, absl::Time now);
  // How many pods of this role are to stay.
  std::int64_t LivePods(const std::string& role) const;
  // `holders`: who may have what nobody else knows. Whoever of them is silent counts as ended, if
  // witnesses were missing for too long.
  void NoteWitnessMissing(const Members& holders, absl::Time now);
  void NoteWitnesses() { unwitnessed_since_ = absl::InfiniteFuture(); }
  // Somebody who was given up reports and waits to be taken back, and the newest view is another
  // coordinator's: its members are to get one of this coordinator, which is above all that the
  // other can know. A kind treats the newest view as broken while this holds.
  bool RenewForReturn() const;
  // Members of `view` whose links have broken blame others. The most blamed goes, workers before
  // servers, of equals the one with the higher index, if the others `can` go on without it; after a
  // while it may come back. Answers whom.
  std::optional<MemberId> EvictMostBlamed(const View& view,
                                          const std::function<bool(const Report&)>& broken,
                                          const std::function<bool(const MemberId&)>& can,
                                          absl::Time now);
  void NoteLosses(const View& view, absl::Time now);
  // Whoever has reported and is free may go.
  void Release(const std::function<bool(const Report&)>& free);

  const CoordinatorOptions options_;
  FailureDetector detector_;
  CheckpointRounds rounds_;
  bool taken_over_ = false;
  absl::Time enough_since_ = absl::InfiniteFuture();
  int failed_views_ = 0;  // in a row, by blame alone
  std::set<std::string> released_;
  std::set<std::string> returning_;  // report, and count as ended: see MayReturn(); by pod UID
  std::string waiting_;
  Training training_;  // the last that was heard, for when nobody is left to ask
  std::int64_t settled_step_ = -1;

 private:
  void NoticeGap(absl::Time now);
  void Refresh(absl::Time now);
  bool TakeOver(absl::Time now);
  std::string Risked() const;
  bool MayReturn(const Report& report) const;

  absl::Time unwitnessed_since_ = absl::InfiniteFuture();
  Summary told_;  // the summary without what changes all the time
  std::uint64_t directives_version_ = 0;
  std::uint64_t report_version_ = 0;
};

}  // namespace starling::membership
