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
// The rules of docs/design/protocol.md, each with its place:
//
//   C0 to C2, C5        ViewPlan: which view is next, over the roster and its replica groups
//   C3 release          ReleaseLeaving(): whoever is not needed any more may go
//   C4 take-over        TakeOver(): nothing is published until the whole roster was heard
//   C5 assumed ended    NoticeUnwitnessed(): the silent count as ended after too long a time
//   C6 blame            Evict(): after two views in a row that broke by blame alone
//   C7 hang             FailureDetector::NoticeHang(): whose work stands still counts as silent
//   G8 late return      MayReturn(): who was given up waits until the others have synced
//   B1 standby          TellView(): of what its standby has not acknowledged nobody is told
//   checkpoint rounds   rounds_
//
// A kind of job adds where its groups lie (MakePlacements()), what its reports say of them
// (Hear()), and what becomes of its work: see PeerCoordinator (one group, of all workers) and
// parameter_server::ShardCoordinator (one for each shard). To add one: derive from this, and name
// it where the program chooses (trainer/coordinator/main.cc).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/checkpoint_rounds.h"
#include "trainer/membership/failure_detector.h"
#include "trainer/membership/placement.h"
#include "trainer/membership/roster.h"
#include "trainer/membership/summary.h"
#include "trainer/membership/types.h"
#include "trainer/membership/view_plan.h"

namespace starling::membership {

// Roles, as pods and certificates name them.
inline constexpr const char* kWorkerRole = "worker";
inline constexpr const char* kServerRole = "parameter-server";

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
  void OnShadowReply(const ShadowReply& reply, absl::Time now);
  // Timeouts and checkpoint rounds; every 50 ms or so.
  void OnTick(absl::Time now);

  // Whom the shell dials, by pod UID. Empty before the grant.
  std::map<std::string, Dial> PodsToDial() const { return detector_.PodsToDial(); }
  // What to tell the member process of this pod.
  Directive DirectiveFor(const std::string& pod_uid) const;
  Summary MakeSummary(absl::Time now) const;
  // What to tell the standby that the controller named; none: there is nobody to tell, or it is not
  // known yet where the job stands.
  std::optional<Shadow> MakeShadow() const;

  // Whom MakeShadow() is for, as the controller named it.
  std::optional<StandbyPod> standby() const {
    return detector_.desired() ? detector_.desired()->standby : std::nullopt;
  }

  // The newest view that was published; null before there is one.
  const View* view() const { return plan_ ? plan_->Newest() : nullptr; }
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
  // Pods of other roles are nobody here. `settled`: see CheckpointRounds. `replan`: so often at
  // most a view is looked for while nobody has said anything that could matter to it.
  Coordinator(CoordinatorOptions options, std::set<std::string> roles, std::int64_t settled,
              absl::Duration replan);

  // What a kind of job adds. --------------------------------------------------------------------

  // A report counts: what it says of the process's phase and groups.
  virtual void Hear(const Report& report, Participant& said, absl::Time now) = 0;
  // Where its groups lie; empty: that is not known yet, and waiting_ says what for.
  virtual std::vector<std::shared_ptr<Placement>> MakePlacements() = 0;
  // Says of the processes that may be in no view why not (FailureDetector::Process::not_admitted),
  // and marks them in the roster.
  virtual void Admit(Roster& roster) = 0;
  // A leaving process is to be kept in views for now.
  virtual bool Keeps(const MemberId& /*id*/, absl::Time /*now*/) { return false; }
  // A view is the newest, published or adopted.
  virtual void OnView(const View& /*view*/) {}
  // After it was decided on views: checkpoints, work, recovery.
  virtual void Work(absl::Time now) = 0;
  // All is saved where the job was halted.
  virtual bool Stopped() const = 0;
  // What is halted and saved stays as it is: no view is made any more, whoever goes.
  virtual bool Rests() const { return false; }
  // Whoever leaves may go, since all of it is saved.
  virtual bool AllSaved() const { return false; }
  virtual void FillTraining(Summary& summary) const = 0;
  // Of a directive, for a process if there is one: Directive.parameter_server.
  virtual std::string PartFor(const MemberId* /*id*/) const { return ""; }
  virtual void OnPodsChanged() {}

  // What all kinds share. -----------------------------------------------------------------------

  Liveness LivenessOf(const MemberId& id, absl::Time now) const {
    return detector_.LivenessOf(id, taken_over_, now);
  }
  bool Halted() const { return detector_.desired() && detector_.desired()->settings.halt; }
  absl::Duration CheckpointInterval() const {
    return absl::Milliseconds(detector_.desired()->checkpoint_interval_ms);
  }
  // The newest view that took effect; null: there is none.
  const View* Current() const { return plan_ ? plan_->Current() : nullptr; }
  bool Running() const { return plan_ && plan_->running(); }
  void Changed() { ++directives_version_; }

  const CoordinatorOptions options_;
  FailureDetector detector_;
  CheckpointRounds rounds_;
  Roster roster_;                    // as it was decided with last
  int failed_views_ = 0;             // in a row, by blame alone
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
  bool MakePlan();
  void TellView();
  void Learn(const Report& report);
  void Decide(absl::Time now);
  std::optional<Participant> ParticipantOf(const Pod& pod, absl::Time now);
  bool Resumes(absl::Time now) const;
  Roster MakeRoster(absl::Time now);
  void Replan(absl::Time now);
  void Evict(Roster& roster, absl::Time now);
  void NoteLosses(absl::Time now);
  void NoticeUnwitnessed(absl::Time now);
  void ReleaseLeaving();

  const absl::Duration replan_;
  bool taken_over_ = false;
  std::map<std::string, Participant> said_;  // by pod UID, what reports have said
  std::set<std::string> released_;
  std::optional<ViewPlan> plan_;
  std::optional<View> told_view_;  // the newest of which members are told
  ShadowReply acknowledged_;       // the newest
  absl::Time plan_due_ = absl::InfinitePast();
  absl::Time unwitnessed_since_ = absl::InfiniteFuture();
  Summary told_;  // the summary without what changes all the time
  std::uint64_t directives_version_ = 0;
  std::uint64_t report_version_ = 0;
};

// Why somebody who reports is not admitted yet, for people.
inline constexpr const char* kReturning =
    "it was silent too long and counts as ended; it is taken back when the others have a view "
    "without it";

}  // namespace starling::membership
