// SPDX-License-Identifier: Apache-2.0
// What a coordinator is set to, and what it tells the controller and its shell: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/hang_rule.h"
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
  std::optional<std::int64_t> resumed_step;  // where steps are lost that had been settled
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
  // The newest request for a checkpoint that all have carried out, and the settled step when they
  // were asked to.
  std::string checkpoint_request;
  std::int64_t checkpoint_request_step = 0;
  bool operator==(const Summary&) const = default;
};

// A summary without what changes all the time: when this changes, the controller hears of it at
// once.
Summary NewsOf(Summary summary);

struct CoordinatorOptions {
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
  HangRule hang;
  Rules rules;
};

// A member that is to be dialled.
struct Dial {
  std::string ip;
  std::string role;  // as its certificate names it
  bool operator==(const Dial&) const = default;
};

}  // namespace starling::membership
