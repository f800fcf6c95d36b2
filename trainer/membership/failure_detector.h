// SPDX-License-Identifier: Apache-2.0
// The failure detector: what every coordinator knows of the pods and processes of its job, whatever
// state they keep. The grant, what is wanted, the newest report of each process, who answers, who
// has ended (or counts as ended), and the incidents that people are told.
//
// It decides nothing about views. Whoever owns it feeds it every event first and asks it then.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/summary.h"
#include "trainer/membership/types.h"

namespace starling::membership {

enum class Liveness {
  kReporting,
  kUnclear,  // not heard on this connection yet
  kSilent,   // does not answer; it may live
  kGone,     // has ended, or counts as ended
};

struct Incident {
  IncidentRecord record;
  MemberId id;                 // the process that was lost
  ViewNumber repaired_by = 0;  // the view that goes on without it
  bool in_flight = false;      // a step was being made
  std::int64_t reached = -1;   // the highest step that anyone had before the repair
};

// Thread-compatible.
class FailureDetector {
 public:
  // The newest member process of a pod, as far as it has reported to this incarnation.
  struct Process {
    bool connected = false;
    bool spoken = false;    // has reported on this connection: until then, who knows who it is
    bool refused = false;   // by the pod's address, since the last report
    bool outdated = false;  // what answers there is older than what has reported before
    absl::Time heard;       // last report
    absl::Time broken = absl::InfinitePast();  // when the last connection that had spoken ended
    std::optional<Report> report;
    absl::Time held_until = absl::InfinitePast();  // evicted by blame: not admitted before
    // It answers, but its work stands still: it counts as silent, until it has ended.
    absl::Time hung_since = absl::InfiniteFuture();
    bool hung() const { return hung_since != absl::InfiniteFuture(); }
    std::string not_admitted;
  };

  // Pods of other roles are nobody here.
  FailureDetector(CoordinatorOptions options, std::set<std::string> roles);

  // Events. ---------------------------------------------------------------------------------------

  // Before every other event. A coordinator that was frozen must not take its own silence for the
  // members': answers by how much the owner's own times move as well.
  absl::Duration OnTime(absl::Time now);
  // False: it is not for us, or has been said before.
  bool OnGrant(const Grant& grant, absl::Time now);
  bool OnDesired(const Desired& desired);
  void OnConnected(const std::string& pod_uid);
  bool OnDisconnected(const std::string& pod_uid, absl::Time now);
  bool OnRefused(const std::string& pod_uid);
  // A later incarnation leads.
  void OnSuperseded() { superseded_ = true; }
  enum class Heard {
    kNothing,     // from nobody of ours
    kSignOfLife,  // it has not heard of this incarnation yet, or is a process of the past
    kReport,
    kNewProcess,  // the first report of a process that replaces another
  };
  Heard OnReport(const std::string& pod_uid, const Report& report, absl::Time now);

  // What is known. --------------------------------------------------------------------------------

  const std::optional<Grant>& grant() const { return grant_; }
  std::uint64_t incarnation() const { return grant_ ? grant_->incarnation : 0; }
  const std::optional<Desired>& desired() const { return desired_; }
  // Of the roster, then of the newest Desired; by UID.
  const std::map<std::string, Pod>& pods() const { return pods_; }
  std::map<std::string, Process>& processes() { return processes_; }
  const std::map<std::string, Process>& processes() const { return processes_; }
  // A later incarnation leads, as a member has heard, or the standby says.
  bool superseded() const { return superseded_; }
  bool finished() const { return desired_ && desired_->finished; }

  const Pod* FindPod(const std::string& uid) const;
  const Process* FindProcess(const std::string& uid) const;
  // Confirmed: by a later process of its pod, by the controller, or because its pod is gone; or
  // assumed, after too long a silence.
  bool Terminated(const MemberId& id) const;
  // `taken_over`: whoever has not been heard by now is silent.
  Liveness LivenessOf(const MemberId& id, bool taken_over, absl::Time now) const;
  const Report* ReportOf(const MemberId& id) const;
  // The pod is to go, or the process was asked to.
  bool IsLeaving(const MemberId& id) const;
  // Whether somebody may be there that is not known to have gone.
  bool AllGone() const;
  std::map<std::string, Dial> PodsToDial() const;
  // Pods that were silent too long and count as ended until TakeBack() (an incident tells of it).
  const std::set<std::string>& assumed_terminated() const { return assumed_terminated_; }

  // C4: whether everyone of the roster has reported, has ended, or (after too long) counts as
  // ended. `witness`: a member of the newest view that the controller has seen has reported.
  // `in_a_view`: whether a process of this pod is in a view that anyone has told of. Of others, who
  // mostly are just starting, an incident tells only once they turn out to hold a state, or are
  // silent for as long as is waited without a witness. `risked` ends the sentence of what may be
  // lost. A standby has nothing to find out: it only gives them the time to report.
  bool HeardRoster(bool witness, const std::function<bool(const std::string& pod_uid)>& in_a_view,
                   const std::string& risked, absl::Time now, std::string& waiting);
  // Whoever counted as ended and reports does not any more. Until then its reports are kept, but it
  // stays ended: the owner decides when it may come back.
  void TakeBack(const std::string& pod_uid) { assumed_terminated_.erase(pod_uid); }
  // A report of this pod counts: does it show that the pod held a state while it was silent?
  void SettleDoubt(const std::string& pod_uid, bool holds_state);
  // C5: who is silent too long counts as ended, and somebody is told what that may cost.
  void AssumeTerminated(const std::set<std::string>& uids, const std::string& risked,
                        absl::Time now);

  // C7: looks whether one of the members of `view` hangs (hang_rule.h); true: one does that did
  // not.
  bool NoticeHang(const View& view, absl::Time now);

  // Incidents. ------------------------------------------------------------------------------------

  std::vector<Incident>& incidents() { return incidents_; }
  // A member of the view that counts does not answer or has ended: the first time that this is
  // noticed, a new incident; else null. `role` begins its reason ("Worker").
  Incident* NoteLoss(const MemberId& id, const std::string& pod, const std::string& role,
                     Liveness liveness, absl::Time now);
  Incident& AddIncident(Incident incident);
  // A view is published that goes on without those who were lost.
  void NoteRepair(ViewNumber view, const std::string& deed);
  // Fills in what does not depend on views: who reports, and the incidents.
  void FillSummary(Summary& summary, const std::set<std::string>& released,
                   const std::function<bool(const MemberId&)>& in_view, absl::Time now) const;

 private:
  // Counts as ended, and is in no view that is known.
  struct Doubt {
    absl::Time since;
    std::string risked;
  };

  void NoteExit(const Report& report);
  void TakePods(const std::vector<Pod>& pods);
  void TellOldDoubts(absl::Time now);
  void NoteRisk(const std::vector<std::string>& pods, const std::string& risked, absl::Time since);

  const CoordinatorOptions options_;
  const std::set<std::string> roles_;
  absl::Time last_event_ = absl::InfiniteFuture();
  absl::Time hang_from_ = absl::InfinitePast();  // nobody is found to hang before
  std::optional<Grant> grant_;
  absl::Time granted_;
  std::optional<Desired> desired_;
  std::map<std::string, Pod> pods_;
  std::map<std::string, Process> processes_;
  std::set<std::string> assumed_terminated_;
  std::map<std::string, Doubt> doubts_;  // by UID
  bool superseded_ = false;
  std::vector<Incident> incidents_;
  std::set<MemberId> lost_;
};

}  // namespace starling::membership
