// SPDX-License-Identifier: Apache-2.0
// The coordinator's side of the membership protocol (rules C0 to C6 of docs/design/protocol.md), as
// a pure machine: it is told what the controller wants, what the members report and which of them
// answer, and it holds a directive for every pod and a report for the controller. All that it knows
// is soft: its members know it too, and a successor rebuilds it from their reports.
//
// Every event method brings the directives and the report up to date before it returns; the shell
// compares directives_version() and report_version() with what it sent last. Time is the shell's:
// monotonic, any origin. One pod has one member process at a time; a later start replaces it.
//
// To add a rule: one private method that Decide() calls in the order of the design page, a row
// there, a test in coordinator_test.cc, and if it guards safety a switch in rules.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/rules.h"
#include "trainer/membership/types.h"

namespace starling::membership {

struct IncidentRecord {
  absl::Time time;  // of its being noticed, in the machine's time
  std::string reason;
  std::string pod;
  std::optional<LastExit> exit;
  std::string message;
  // From the end of the process's connection, or from its last report where that did not end.
  absl::Duration detection;
  absl::Duration silence;                  // from its last report: detection is never longer
  std::optional<absl::Duration> recovery;  // not yet known: still recovering
  std::int64_t repeated_steps = 0;
  bool operator==(const IncidentRecord&) const = default;
};

struct MemberState {
  MemberId id;
  std::string pod;
  Phase phase = Phase::kOut;
  bool connected = false;
  absl::Duration silent;
  std::int64_t settled_step = -1;
  bool in_view = false;
  bool drained = false;  // released: its pod may go
  std::string refused;   // why it is not admitted
  bool operator==(const MemberState&) const = default;
};

struct Summary {
  std::string boot_id;
  std::uint64_t incarnation = 0;
  ViewNumber newest_view = 0;
  std::int64_t settled_step = -1;
  Training training;
  std::vector<IncidentRecord> incidents;
  std::vector<MemberState> members;
  bool view_synced = false;
  bool stopped = false;
  std::int64_t settings_generation = 0;
  bool superseded = false;
  std::string waiting;  // why no view is published, for people; empty: nothing is missing
  bool operator==(const Summary&) const = default;
};

// Thread-compatible.
class Coordinator {
 public:
  struct Options {
    std::string boot_id;
    absl::Duration heartbeat_timeout = absl::Seconds(1);
    // After a takeover, silent roster members count as terminated: the short time once a member of
    // the newest view that the controller has seen has reported.
    absl::Duration takeover_timeout = absl::Seconds(30);
    absl::Duration takeover_timeout_with_witness = absl::Seconds(2);
    // The first view waits so long for the rest once minReplicas are there.
    absl::Duration first_view_grace = absl::Seconds(1);
    // How long a member evicted by blame stays out.
    absl::Duration blame_hold = absl::Seconds(5);
    int max_incidents = 20;
    Rules rules;
  };

  explicit Coordinator(Options options);

  // Events.
  void OnGrant(const Grant& grant, absl::Time now);
  void OnDesired(const Desired& desired, absl::Time now);
  void OnConnected(const std::string& pod_uid, absl::Time now);
  // The stream broke; whether the process is gone is not known yet.
  void OnDisconnected(const std::string& pod_uid, absl::Time now);
  // A new dial was refused: no process listens there. It counts as silent at once.
  void OnRefused(const std::string& pod_uid, absl::Time now);
  void OnReport(const std::string& pod_uid, const Report& report, absl::Time now);
  // Timeouts and checkpoint turns; every 50 ms or so.
  void OnTick(absl::Time now);

  // What the shell dials: pods of members by UID, with their addresses. Empty before the grant.
  std::map<std::string, std::string> PodsToDial() const;
  // What to tell the member process of this pod.
  Directive DirectiveFor(const std::string& pod_uid) const;
  Summary MakeSummary(absl::Time now) const;

  bool finished() const { return desired_ && desired_->finished; }
  // The job has ended, and of its pods nobody is left who would have to be told.
  bool AllGone() const;
  std::uint64_t incarnation() const { return grant_ ? grant_->incarnation : 0; }
  bool superseded() const { return superseded_; }
  // Pods that were silent too long and count as ended until they report (an incident tells of it).
  const std::set<std::string>& assumed_terminated() const { return assumed_terminated_; }
  std::uint64_t directives_version() const { return directives_version_; }
  std::uint64_t report_version() const { return report_version_; }

 private:
  // The newest member process of a pod, as far as it has reported to this incarnation.
  struct Process {
    bool connected = false;
    bool spoken = false;    // has reported on this connection: until then, who knows who it is
    bool refused = false;   // by the pod's address, since the last report
    bool outdated = false;  // what answers there is older than what has reported before
    absl::Time heard;       // last report
    absl::Time broken = absl::InfinitePast();  // when the last connection that had spoken ended
    std::optional<Report> report;
    absl::Time aborted_since = absl::InfiniteFuture();
    absl::Time held_until = absl::InfinitePast();  // evicted by blame: not admitted before
    std::string not_admitted;
  };
  enum class Standing { kReporting, kUnclear, kSilent, kGone };

  struct Incident {
    IncidentRecord record;
    MemberId id;                 // the process that was lost
    ViewNumber repaired_by = 0;  // the view that goes on without it
    bool in_flight = false;      // a step was being made
    std::int64_t reached = -1;   // the highest step that anyone had before the repair
  };

  // coordinator.cc: what is known.
  void NoticeGap(absl::Time now);
  const Pod* FindPod(const std::string& uid) const;
  bool Terminated(const MemberId& id) const;
  bool Fresh(const Process& process, absl::Time now) const;
  Standing StandingOf(const MemberId& id, absl::Time now) const;
  const Report* ReportOf(const MemberId& id) const;
  void Learn(const Report& report);
  void LearnView(const View& view);
  void Prune();
  bool SyncedByAll(const View& view) const;
  const View* Current() const;
  const View* Pending(const View* current) const;
  ViewNumber Newest() const { return published_.empty() ? 0 : published_.rbegin()->first; }
  void Refresh(absl::Time now);
  void FillTraining(Summary& summary) const;
  bool AllStopped() const;

  // coordinator_rules.cc: what follows from it.
  void Decide(absl::Time now);
  bool TakeOver(absl::Time now);
  void AssumeTerminated(const std::set<std::string>& uids, absl::Time now);
  bool EnoughFor(std::size_t members, absl::Time now);
  void FirstView(absl::Time now);
  bool Broken(const View& view, absl::Time now, bool& blamed) const;
  void Repair(const View& current, bool blamed, absl::Time now);
  std::vector<MemberId> Survivors(const View& current, absl::Time now);
  void Evict(const View& view, std::vector<MemberId>& members, absl::Time now);
  bool Resume(const View& current, absl::Time now);
  void Plan(const View& current, const View* pending, absl::Time now);
  std::vector<MemberId> Remaining(const View& current) const;
  void TakeTurn(const View& current, absl::Time now);
  void Release(const View* current, const View* pending);

  // coordinator_views.cc: who may be in a view, and what it carries.
  std::vector<std::string> Eligible(absl::Time now);
  bool IsJoinable(const std::string& uid) const;
  bool IsLeaving(const MemberId& id) const;
  bool IsRunning(const View& view, absl::Time now) const;
  ViewNumber MissingIn(const View& view) const;
  bool Witnessed(const View& view, absl::Time now);
  View Compose(const std::vector<MemberId>& members) const;
  void Publish(View view, const std::string& deed);

  // coordinator_incidents.cc: what is told about it.
  void NoteLosses(const View& view, absl::Time now);
  void FollowRecovery(const Report& report, absl::Time now);
  void NoteExit(const Report& report);
  void AddIncident(Incident incident);

  const Options options_;
  absl::Time last_event_ = absl::InfiniteFuture();
  std::optional<Grant> grant_;
  absl::Time granted_;
  std::optional<Desired> desired_;
  std::map<std::string, Pod> pods_;           // workers of the roster, then of the newest Desired
  std::map<std::string, Process> processes_;  // by pod UID
  std::map<ViewNumber, View> published_;      // by anyone, from the last one synced by all on
  std::set<ViewNumber> acted_;                // prepared ones that a member of `from` has installed
  std::map<MemberId, ViewNumber> synced_;     // the highest view that a process has synced
  std::set<std::string> assumed_terminated_;  // pods that were silent too long
  bool taken_over_ = false;
  bool newest_unknown_ = false;  // the controller has seen a view that none of its members survived
  std::uint64_t next_epoch_ = 1;
  std::int64_t turn_ = 0;
  absl::Time turn_due_ = absl::InfinitePast();
  std::int64_t turn_step_ = -1;
  ViewNumber turn_view_ = 0;
  absl::Time enough_since_ = absl::InfiniteFuture();
  absl::Time unwitnessed_since_ = absl::InfiniteFuture();
  int failed_views_ = 0;  // in a row, by blame alone
  std::set<std::string> released_;
  std::vector<Incident> incidents_;
  std::set<MemberId> lost_;
  std::string waiting_;
  Training training_;  // the last that was heard, for when nobody is left to ask
  std::int64_t settled_step_ = -1;
  Summary told_;  // the summary without what changes all the time
  bool superseded_ = false;
  std::uint64_t directives_version_ = 0;
  std::uint64_t report_version_ = 0;
};

}  // namespace starling::membership
