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
  absl::Duration detection;
  std::optional<absl::Duration> recovery;  // not yet known: still recovering
  std::int64_t repeated_steps = 0;
};

struct MemberState {
  MemberId id;
  std::string pod;
  Phase phase = Phase::kOut;
  bool connected = false;
  absl::Duration silent;
  std::int64_t settled_step = -1;
  bool in_view = false;
  bool drained = false;
  std::string refused;
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

  std::uint64_t incarnation() const { return grant_ ? grant_->incarnation : 0; }
  bool superseded() const { return superseded_; }
  std::uint64_t directives_version() const { return directives_version_; }
  std::uint64_t report_version() const { return report_version_; }

 private:
  // The newest member process of a pod, as far as it has reported to this incarnation.
  struct Process {
    bool connected = false;
    bool refused = false;  // since the stream broke
    absl::Time heard;      // last sign of life
    std::optional<Report> report;
    absl::Time held_until;  // evicted by blame: not admitted before
  };

  void Decide(absl::Time now);

  const Options options_;
  std::optional<Grant> grant_;
  std::optional<Desired> desired_;
  std::map<std::string, Process> processes_;  // by pod UID
  bool superseded_ = false;
  std::uint64_t directives_version_ = 0;
  std::uint64_t report_version_ = 0;
};

}  // namespace starling::membership
